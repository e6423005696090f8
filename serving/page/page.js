"use strict";
// The page: speaks through v1/audio/speech/timestamps, plays the samples while they arrive, and keeps speeches in the browser.

const LEAD = 0.1; // seconds between the arrival of samples and their sound, against gaps
const START = 3000; // milliseconds within which a browser starts its sound device
const KEPT = 30; // speeches
const MOST_KEPT = 60; // MB of them
const at = (name) => document.getElementById(name);
const settings = ["voice", "speed", "vocoder", "seed", "sigma", "denoising_strength"]; // fields, by the interface's names
// Errors in a visitor's words, by their codes.
const MESSAGES = {
  empty_text: "Please type a text first.",
  overloaded: "Many people are listening just now. Please try again in a moment.",
  timeout: "This took too long. Please try again, perhaps with a shorter text.",
  nothing_to_say: "There are no words in this text. Please add some.",
  no_audio: "The voice stayed silent. Please add words or a full stop.",
  voice_not_found: "This voice is no longer there. Please reload the page.",
  vocoder_not_found: "This voice has no such vocoder. Please reload the page.",
  out_of_memory: "This text is too long for this machine. Please try a shorter one.",
  internal: "Something went wrong on the server. Please try again.",
  not_ready: "The voice is still being loaded, or the server is stopping. Please try again in a moment.",
};
let voices = [];
let record = null; // the speech that is shown: text, words, rate, samples (Int16Array), length, done, settings, about
let asked = null; // the settings and the text that `record` was asked for, as one string
let reading = null; // AbortController of the answer that arrives

// --- sound: samples scheduled one after another; a browser starts it only after a click or a key ---

const sound = { context: null, playing: false, offset: 0, base: 0, scheduled: 0, sources: new Set() };

function unlock() {
  sound.context ??= new AudioContext();
  if (sound.context.state === "suspended") sound.context.resume();
}

function position() {
  if (!sound.playing) return sound.offset;
  const heard = sound.offset + Math.max(0, sound.context.currentTime - sound.base);
  return Math.min(heard, sound.scheduled / record.rate);
}

function silence() {
  for (const source of sound.sources) source.stop();
  sound.sources.clear();
  sound.playing = false;
}

function pause() {
  sound.offset = record ? position() : 0;
  silence();
  show();
}

function play(from) {
  unlock();
  silence();
  Object.assign(sound, { playing: true, offset: from, base: sound.context.currentTime + LEAD, scheduled: Math.round(from * record.rate) });
  schedule();
  show();
  setTimeout(checkSound, START);
}

function schedule() {
  const { context } = sound;
  const samples = record.samples.subarray(sound.scheduled, record.length);
  if (!sound.playing || !samples.length) return;
  let when = sound.base + sound.scheduled / record.rate - sound.offset;
  if (when < context.currentTime) {
    sound.base += context.currentTime + LEAD - when; // the samples are late
    when = context.currentTime + LEAD;
  }
  const buffer = context.createBuffer(1, samples.length, record.rate);
  buffer.getChannelData(0).set(Float32Array.from(samples, (sample) => sample / 32768));
  const source = context.createBufferSource();
  source.buffer = buffer;
  source.connect(context.destination);
  source.start(when);
  source.onended = () => sound.sources.delete(source);
  sound.sources.add(source);
  sound.scheduled = record.length;
}

// Some browsers never start without a sound device.
function checkSound() {
  if (!sound.playing || sound.context.state === "running") return;
  pause();
  fail("This browser does not start its sound. The files below have the speech.");
}

// --- speaking ---

function request() {
  const body = { input: at("text").value };
  for (const name of settings) if (at(name).value.trim() && !at(name).closest("[hidden]")) body[name] = at(name).value.trim();
  body.speed = Number(at("speed").value);
  return body;
}

async function speak() {
  const body = request();
  const own = new AbortController();
  reading?.abort(); // the newest text counts
  reading = own;
  clear();
  unlock();
  asked = JSON.stringify(body);
  say("Speaking …");
  show();
  try {
    check(body);
    const rate = voices.find((voice) => voice.id === body.voice)?.sampling_rate;
    const options = { response_format: "pcm", sample_rate: rate, details: true };
    await read(body, own, await ask({ ...body, ...options }, own.signal));
  } catch (error) {
    if (reading !== own) return; // a newer one has begun
    reading = null;
    clear();
    fail(error instanceof TypeError ? "The server does not answer. Is it still running?" : error.message);
  }
  show();
}

function check(body) {
  const found = [...body.input].length;
  const most = Number(at("text").dataset.most);
  if (found > most) throw new Error(`This text has ${count(found)} characters, and ${count(most)} are allowed. Please shorten it.`);
  for (const [name, label] of [["seed", "Seed"], ["sigma", "Sigma"], ["denoising_strength", "Denoiser strength"]])
    if (body[name] !== undefined && !(Number(body[name]) >= 0)) throw new Error(`${label}: ${body[name]} is not a number. Please enter one, or nothing.`);
}

async function ask(body, signal) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal };
  const answer = await fetch("v1/audio/speech/timestamps", options);
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({}));
  throw fault(error ?? { message: `The server answered with ${answer.status} ${answer.statusText}` });
}

function fault({ code, message }) {
  const words = message.replace(/ \(--[a-z-]+\)/g, "").replace(/^input: /, "").replace(/\.$/, "");
  return new Error(MESSAGES[code] ?? `${words[0].toUpperCase()}${words.slice(1)}.`);
}

async function read(body, own, answer) {
  const seed = answer.headers.get("X-Seed");
  const started = { text: body.input, words: [], samples: new Int16Array(2 ** 18), length: 0, done: false };
  record = { ...started, rate: Number(answer.headers.get("X-Sampling-Rate")), when: Date.now(), settings: { ...body, seed } };
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    if (reading !== own) return;
    const lines = (rest + part.value).split("\n");
    rest = lines.pop();
    lines.forEach((line) => take(JSON.parse(line)));
  }
  if (reading !== own) return;
  if (!record.about) throw new Error("The speech ended early. Please try again.");
  reading = null;
  record.done = true;
  record.samples = record.samples.slice(0, record.length);
  finish();
  keep(record);
}

function take(line) {
  if (line.error) throw fault(line.error);
  if (line.details) record.about = line.details;
  for (const word of line.timestamps ?? []) record.words.push(word);
  if (line.audio) {
    const bytes = Uint8Array.from(atob(line.audio), (letter) => letter.charCodeAt(0));
    append(new Int16Array(bytes.buffer));
  }
  if (line.timestamps?.length) write();
}

function append(samples) {
  const isFirst = !record.length;
  if (record.length + samples.length > record.samples.length) {
    const larger = new Int16Array(2 * record.samples.length + samples.length);
    larger.set(record.samples.subarray(0, record.length));
    record.samples = larger;
  }
  record.samples.set(samples, record.length);
  record.length += samples.length;
  if (isFirst) open();
  if (isFirst) play(0);
  else schedule();
}

// --- what is shown ---

const count = (number) => number.toLocaleString("en");
const seconds = () => (record ? record.length / record.rate : 0);
const clock = (time) => `${Math.floor(time / 60)}:${String(Math.floor(time % 60)).padStart(2, "0")}`;
const say = (words) => (at("status").textContent = words);
const fail = (words) => (at("error").textContent = words);

function clear() {
  silence();
  record = asked = null;
  sound.offset = 0;
  fail("");
  say("");
  at("player").hidden = at("about").hidden = true;
}

function open() {
  at("player").hidden = false;
  document.querySelector(".files").hidden = true;
  write();
}

// The text, with an element for each word that has a time.
function write() {
  const place = at("spoken");
  const parts = [];
  let written = 0;
  for (const word of record.words) {
    const start = record.text.indexOf(word.word, written);
    if (start < 0) continue;
    const element = document.createElement("span");
    element.textContent = word.word;
    element.dataset.start = word.start_time;
    parts.push(record.text.slice(written, start), element);
    written = start + word.word.length;
  }
  place.replaceChildren(...parts, record.text.slice(written));
}

function finish() {
  const bytes = wav(record);
  URL.revokeObjectURL(at("wav").href);
  at("wav").href = URL.createObjectURL(new Blob([bytes], { type: "audio/wav" }));
  at("wav").download = "speech.wav";
  const { input, ...others } = record.settings;
  at("mp3").href = `v1/audio/speech?${new URLSearchParams({ ...others, response_format: "mp3", text: input })}`; // the same seed: the same speech
  document.querySelector(".files").hidden = false;
  const limit = record.about.finished ? "" : " The voice reached its limit, so the end of the text may be missing.";
  say(`${seconds().toFixed(1)} s of speech.${limit}`);
  at("facts").textContent = `Voice ${record.settings.voice}, vocoder ${record.settings.vocoder}, seed ${record.settings.seed}, ${count(record.rate)} Hz; first sound after ${record.about.first.toFixed(2)} s.`;
  at("about").hidden = false;
  draw();
}

function wav({ samples, rate }) {
  const bytes = new DataView(new ArrayBuffer(44 + samples.byteLength));
  const words = (place, text) => [...text].forEach((letter, i) => bytes.setUint8(place + i, letter.charCodeAt(0)));
  [[0, "RIFF"], [8, "WAVE"], [12, "fmt "], [36, "data"]].forEach(([place, text]) => words(place, text));
  [[4, 36 + samples.byteLength], [16, 16], [24, rate], [28, 2 * rate], [40, samples.byteLength]].forEach(([place, value]) => bytes.setUint32(place, value, true));
  [[20, 1], [22, 1], [32, 2], [34, 16]].forEach(([place, value]) => bytes.setUint16(place, value, true));
  new Int16Array(bytes.buffer, 44).set(samples);
  return bytes.buffer;
}

// The buttons, the seek bar and the word that is spoken.
function show() {
  const isNew = asked !== JSON.stringify(request());
  const isPlaying = sound.playing || (reading !== null && !record);
  at("speak").textContent = isNew || !isPlaying ? (record && !isNew && sound.offset > 0 ? "Go on" : "Speak") : "Pause";
  at("play").classList.toggle("pauses", sound.playing);
  at("play").setAttribute("aria-label", sound.playing ? "Pause" : "Play");
  if (!record) return;
  const now = position();
  at("seek").max = seconds();
  at("seek").value = now;
  at("seek").setAttribute("aria-valuetext", `${now.toFixed(0)} of ${seconds().toFixed(0)} seconds`);
  at("time").textContent = `${clock(now)} / ${clock(seconds())}`;
  light(sound.playing || now ? now : -1);
  if (sound.playing && record.done && now >= seconds() - 0.005) {
    silence();
    sound.offset = 0;
    show();
  }
}

function light(now) {
  const place = at("spoken");
  const lit = [...place.children].findLast((word) => Number(word.dataset.start) <= now);
  const before = place.querySelector(".lit");
  if (lit === before) return;
  before?.classList.remove("lit");
  lit?.classList.add("lit");
  if (lit && (lit.offsetTop < place.scrollTop || lit.offsetTop + lit.offsetHeight > place.scrollTop + place.clientHeight))
    place.scrollTop = lit.offsetTop - place.clientHeight / 3; // not scrollIntoView, which would move the page as well
}

// --- pictures: values of 0 to 255 in rows, drawn with axes ---

function draw() {
  if (!record?.about || !at("details").open) return;
  const about = record.about;
  picture(at("mel"), about.mel, "frequency bands", 160);
  picture(at("alignment"), about.alignment, "symbols", 200);
}

function picture(canvas, { rows, columns, values }, label, height) {
  const style = getComputedStyle(document.body);
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const scale = devicePixelRatio || 1;
  const [width, left, below] = [canvas.clientWidth, 44, 34];
  [canvas.width, canvas.height, canvas.style.height] = [width * scale, (height + below) * scale, `${height + below}px`];
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const image = new ImageData(columns, rows);
  const bytes = atob(values);
  const [from, to] = isDark ? [[19, 21, 24], [255, 224, 138]] : [[255, 255, 255], [20, 60, 110]];
  for (let i = 0; i < rows * columns; i++) {
    const place = 4 * ((rows - 1 - Math.floor(i / columns)) * columns + (i % columns)); // the first row is at the bottom
    const value = bytes.charCodeAt(i) / 255;
    for (let c = 0; c < 3; c++) image.data[place + c] = from[c] + value * (to[c] - from[c]);
    image.data[place + 3] = 255;
  }
  const whole = new OffscreenCanvas(columns, rows);
  whole.getContext("2d").putImageData(image, 0, 0);
  pen.drawImage(whole, left, 0, width - left - 8, height);
  pen.fillStyle = pen.strokeStyle = style.color;
  pen.strokeRect(left, 0.5, width - left - 8, height - 1);
  pen.font = "12px system-ui, sans-serif";
  axes(pen, width - left - 8, left, height, label);
}

function axes(pen, width, left, height, label) {
  const total = record.about.seconds;
  const step = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100].find((one) => (one / total) * width > 45) ?? 200;
  pen.textAlign = "center";
  for (let i = 0; i * step <= total; i++) {
    const x = left + ((i * step) / total) * width;
    pen.fillRect(x, height, 1, 4);
    pen.fillText(Number((i * step).toFixed(1)), x, height + 15);
  }
  pen.fillText("seconds", left + width / 2, height + 30);
  pen.translate(28, height / 2);
  pen.rotate(-Math.PI / 2);
  pen.fillText(label, 0, 0);
}

// --- earlier speeches, in the browser's own store ---

const memory = []; // where there is no store, as in some private windows
let store = null;

const done = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

async function openStore() {
  const request = indexedDB.open("speeches", 1);
  request.onupgradeneeded = () => request.result.createObjectStore("speeches", { keyPath: "when" });
  store = await done(request);
}

const speeches = (mode = "readwrite") => store.transaction("speeches", mode).objectStore("speeches");

async function keep(speech) {
  memory.push(speech);
  try {
    if (store) await done(speeches().put(speech));
  } catch (error) {
    console.warn(error); // the disk is full, for example: the speech stays until the page is closed
  }
  await trim();
  list();
}

async function trim() {
  memory.sort((a, b) => a.when - b.when);
  const size = () => memory.reduce((sum, one) => sum + one.samples.byteLength, 0) / 1e6;
  while (memory.length > 1 && (memory.length > KEPT || size() > MOST_KEPT)) {
    const { when } = memory.shift();
    if (store) await done(speeches().delete(when)).catch(console.warn);
  }
}

function list() {
  const items = [...memory].reverse().map((speech) => {
    const [item, button, text, about] = ["li", "button", "span", "span"].map((name) => document.createElement(name));
    text.textContent = speech.text;
    about.textContent = `${speech.settings.voice}, ${clock(speech.length / speech.rate)}, ${new Date(speech.when).toLocaleString([], { dateStyle: "medium", timeStyle: "short" })}`;
    [text.className, about.className, button.type] = ["excerpt", "about", "button"];
    button.append(text, about);
    button.onclick = () => replay(speech);
    item.append(button);
    return item;
  });
  document.querySelector("#history ol").replaceChildren(...items);
  at("history").hidden = !items.length;
}

function replay(speech) {
  reading?.abort();
  reading = null;
  clear();
  record = speech;
  open();
  finish();
  play(0);
  at("player").scrollIntoView({ block: "nearest" });
}

async function forget() {
  memory.length = 0;
  if (store) await done(speeches().clear()).catch(console.warn);
  list();
}

// --- the form ---

function countText() {
  const found = [...at("text").value].length;
  const most = Number(at("text").dataset.most);
  at("counter").textContent = `${count(found)} of ${count(most)} characters`;
  at("counter").classList.toggle("over", found > most);
  at("speed-shown").textContent = `${Number(at("speed").value).toFixed(2)}×`;
}

function fillVoices() {
  at("voice").replaceChildren(...voices.map(({ id }) => new Option(id === "embedded" ? "Embedded voice" : id, id)));
  fillVocoders();
}

function fillVocoders() {
  const voice = voices.find(({ id }) => id === at("voice").value);
  at("vocoder").replaceChildren(...(voice?.vocoders ?? []).map((name) => new Option(name, name)));
  showNoise();
}

function showNoise() {
  const voice = voices.find(({ id }) => id === at("voice").value);
  for (const field of document.querySelectorAll(".noise")) field.hidden = !voice?.noisy_vocoders.includes(at("vocoder").value);
}

function press() {
  const isNew = asked !== JSON.stringify(request());
  if (isNew) speak();
  else if (sound.playing) pause();
  else if (record && sound.offset > 0) play(sound.offset);
  else if (!reading) speak();
}

async function loadVoices() {
  const answer = await fetch("v1/voices").catch(() => null);
  const { data, error } = (await answer?.json().catch(() => null)) ?? {};
  if (data) {
    voices = data;
    fillVoices();
    say("");
  } else if (error && error.code !== "not_ready") {
    say("");
    fail(fault(error).message);
  } else {
    say("The voice is being loaded …");
    setTimeout(loadVoices, 1000);
  }
}

async function begin() {
  at("text").value = localStorage.getItem("text") ?? at("text").value;
  at("limit").textContent = `This browser keeps the latest ${KEPT}, up to ${MOST_KEPT} MB, until you delete them.`;
  document.addEventListener("input", () => {
    localStorage.setItem("text", at("text").value);
    if (!sound.playing) fail("");
    countText();
    show();
  });
  let clicks = 0;
  at("speak").addEventListener("click", (event) => (clicks = event.detail));
  at("form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (clicks < 2) press(); // the second click of a double click is the same wish
    clicks = 0;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.target !== at("text")) return;
    event.preventDefault();
    speak();
  });
  at("voice").onchange = fillVocoders;
  at("vocoder").onchange = showNoise;
  at("play").onclick = () => (sound.playing ? pause() : play(sound.offset));
  at("seek").oninput = () => seek(Number(at("seek").value));
  at("spoken").onclick = (event) => event.target.dataset.start && seek(Number(event.target.dataset.start));
  at("details").ontoggle = draw;
  at("forget").onclick = forget;
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  setInterval(() => sound.playing && show(), 50);
  countText();
  loadVoices();
  try {
    await openStore();
    memory.push(...(await done(speeches("readonly").getAll())));
  } catch (error) {
    console.warn(error);
  }
  await trim();
  list();
}

function seek(time) {
  if (sound.playing) play(time);
  else sound.offset = time;
  show();
}

begin();
