"use strict";
// The page: speaks through v1/audio/speech/timestamps, and keeps what has arrived whatever happens then.

const at = (name) => document.getElementById(name);
const settings = ["voice", "speed", "vocoder", "seed", "sigma", "denoising_strength"]; // fields, by the interface's names
// By which a voice is heard, in its language.
const SAMPLES = {
  en: "Good morning. This is how I sound when I read you a sentence.",
  es: "Buenos días. Así suena mi voz cuando le leo una frase.",
  fr: "Bonjour. Voici ma voix quand je vous lis une phrase.",
  de: "Guten Morgen. So klinge ich, wenn ich Ihnen einen Satz vorlese.",
  it: "Buongiorno. Ecco la mia voce quando vi leggo una frase.",
  pt: "Bom dia. É assim que soa a minha voz quando leio uma frase.",
  nl: "Goedemorgen. Zo klink ik als ik u een zin voorlees.",
  pl: "Dzień dobry. Tak brzmi mój głos, kiedy czytam zdanie.",
  ru: "Доброе утро. Так звучит мой голос, когда я читаю вам предложение.",
  sv: "God morgon. Så här låter jag när jag läser en mening för dig.",
  tr: "Günaydın. Size bir cümle okurken sesim böyle duyulur.",
};
const LARGEST_FILE = 400_000; // bytes of a text file
const QUIET = 15; // seconds without a sign of the server, after which the page says so
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
  invalid_api_key: "The server asks for its key. Please reload the page.",
};
let voices = [];
let record = null; // the speech that is shown: text, words, rate, samples (Int16Array), length, mp3, done, part, settings, about
let asked = null; // the settings and the text that `record` was asked for, as one string
let reading = null; // AbortController of the answer that arrives
let heardAt = 0; // when the server was last heard of, in milliseconds
let slowLine = null; // whether the line is too slow for samples, once a whole speech has shown it

// --- speaking ---

function request() {
  const body = { input: at("text").value };
  for (const name of settings) if (at(name).value.trim() && !at(name).closest("[hidden]")) body[name] = at(name).value.trim();
  body.speed = Number(at("speed").value);
  return body;
}

async function speak() {
  await stop(); // the newest text counts
  const body = request();
  const own = (reading = new AbortController());
  clear();
  unlock();
  asked = JSON.stringify(body);
  heardAt = performance.now();
  show();
  try {
    check(body);
    const rate = voices.find((voice) => voice.id === body.voice)?.sampling_rate;
    const packed = isSlow();
    const formats = packed ? { response_format: "mp3" } : { response_format: "pcm", second_format: "mp3" };
    await read(body, own, await ask({ ...body, ...formats, sample_rate: rate, details: true }, own.signal), packed);
  } catch (error) {
    if (reading !== own) return; // stopped, or a newer one has begun
    console.warn(error);
    await settle(say_error(error));
  }
  show();
}

function say_error(error) {
  if (error instanceof SyntaxError) return "The server's answer cannot be read.";
  if (!(error instanceof TypeError)) return error.message;
  if (!navigator.onLine) return "This device is offline.";
  return record ? "The connection to the server broke." : "The server does not answer. Is it still running?";
}

// The end of an answer. What has arrived of it is shown, played and kept, also if it is only a part.
async function settle(problem = "") {
  reading = null;
  const speech = record;
  if (speech) await decodeRest(speech);
  if (!speech?.length) {
    if (speech === record) clear();
    fail(problem);
    return;
  }
  usualPace = speech.length / speech.rate / (speech.arrivals.at(-1).time - speech.began);
  speech.done = true;
  speech.part = !speech.about;
  speech.samples = speech.samples.slice(0, speech.length);
  if (record === speech) finish();
  if (problem) fail(`${problem} What has arrived of the speech is kept.`);
  schedule();
  keep(speech);
}

// Stops the sound, and the computing on the server, which ends when its client leaves.
async function stop() {
  const stopped = reading;
  silence();
  sound.offset = 0;
  if (stopped) {
    reading = null;
    stopped.abort();
    await settle();
    say(record ? `Stopped after ${seconds().toFixed(1)} s of speech, which are kept.` : "Stopped.");
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
  if (answer.ok && answer.body) return answer;
  const { error } = await answer.json().catch(() => ({}));
  throw fault(error ?? { message: `The server answered with ${answer.status} ${answer.statusText}` });
}

function fault({ code, message }) {
  const words = String(message).replace(/ \(--[a-z-]+\)/g, "").replace(/^input: /, "").replace(/\.$/, "");
  return new Error(MESSAGES[code] ?? `${words[0].toUpperCase()}${words.slice(1)}.`);
}

async function read(body, own, answer, packed) {
  const seed = answer.headers.get("X-Seed");
  const started = { text: body.input, words: [], written: 0, samples: new Int16Array(2 ** 18), length: 0, mp3: [], done: false, part: false };
  const measured = { arrivals: [], stalls: 0, began: performance.now() / 1000, packed };
  const rate = Number(answer.headers.get("X-Sampling-Rate")) || 22050;
  record = { ...started, ...measured, rate, when: Date.now(), settings: { ...body, seed }, asked: body, note: noteOf(answer) };
  at("note").textContent = record.note;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    if (reading !== own) return;
    heardAt = performance.now();
    const lines = (rest + part.value).split("\n");
    rest = lines.pop();
    lines.forEach((line) => take(JSON.parse(line)));
  }
  if (reading !== own) return;
  if (!record.about) throw new Error("The speech ended early.");
  const took = performance.now() / 1000 - record.began;
  slowLine = packed || (took > 1.3 * record.about.computed + 1 && seconds() < 1.3 * took);
  await settle();
}

// The header is ASCII, with Python's escapes of other characters.
function noteOf(answer) {
  const escaped = answer.headers.get("X-Note") ?? "";
  const text = escaped.replace(/\\(?:x(..)|u(.{4})|U(.{8})|(.))/g, (_, ...codes) => codes[3] ?? String.fromCodePoint(parseInt(codes[0] ?? codes[1] ?? codes[2], 16)));
  return text && `Note: ${text}.`;
}

const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

function take(line) {
  if (line.error) throw fault(line.error);
  if (line.details) record.about = line.details;
  record.words.push(...(line.timestamps ?? []));
  const packed = line.second ?? (record.packed ? line.audio : "");
  if (packed) record.mp3.push(bytesOf(packed));
  if (line.timestamps?.length) write();
  if (record.packed) decode(record, false);
  else if (line.audio) append(new Int16Array(bytesOf(line.audio).buffer));
}

// --- what is shown ---

const count = (number) => number.toLocaleString("en");
const clock = (time) => `${Math.floor(time / 60)}:${String(Math.floor(time % 60)).padStart(2, "0")}`;
const fail = (words) => (at("error").textContent = words);

function say(words) {
  if (at("status").textContent !== words) at("status").textContent = words;
}

function clear() {
  silence();
  record = asked = null;
  sound.offset = 0;
  fail("");
  say("");
  at("note").textContent = "";
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
  record.written = written;
  place.replaceChildren(...parts, record.text.slice(written));
}

function offerFile(name, contents, type) {
  URL.revokeObjectURL(at(name).href);
  at(name).hidden = !contents;
  if (contents) Object.assign(at(name), { href: URL.createObjectURL(new Blob(contents, { type })), download: `speech.${name}` });
}

function finish() {
  offerFile("wav", [wav(record)], "audio/wav");
  offerFile("mp3", record.mp3?.length && record.mp3, "audio/mpeg");
  document.querySelector(".files").hidden = false;
  const limit = record.about?.finished === false ? " The voice reached its limit, so the end of the text may be missing." : "";
  say(`${seconds().toFixed(1)} s of speech${record.part ? ", a part of the text" : ""}.${limit}`);
  at("note").textContent = record.note ?? "";
  const first = record.about ? `; first sound after ${record.about.first.toFixed(2)} s` : "";
  const { voice, vocoder, seed } = record.settings;
  at("facts").textContent = `Voice ${voice}, vocoder ${vocoder}, seed ${seed}, ${count(record.rate)} Hz${first}.`;
  at("about").hidden = false;
  for (const picture of document.querySelectorAll("figure")) picture.hidden = !record.about;
  draw();
}

// What the large button does: nothing, so that it is hidden, while the first sound is awaited.
function deed() {
  if (asked !== JSON.stringify(request())) return "Speak";
  if (sound.playing) return sound.waiting ? "" : "Pause";
  if (reading) return record?.length ? "Go on" : "";
  return record && sound.offset > 0 ? "Go on" : "Speak";
}

// The buttons, the seek bar and the word that is spoken.
function show() {
  if (sound.playing && !sound.waiting && !record.done && position() >= seconds() - 0.005) starve();
  at("speak").textContent = deed();
  at("speak").hidden = !deed();
  at("stop").hidden = !(reading || sound.playing);
  at("play").classList.toggle("pauses", sound.playing);
  at("play").setAttribute("aria-label", sound.playing ? "Pause" : "Play");
  if (reading || sound.waiting) say(progress());
  else if (at("status").textContent.endsWith(" …") && record) say("");
  if (!record?.length) return;
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

function progress() {
  const silent = Math.floor((performance.now() - heardAt) / 1000);
  if (reading && silent >= QUIET) return `Nothing has come from the server for ${5 * Math.floor(silent / 5)} s; still waiting …`;
  if (!record?.length) return "Waiting for the first sound …";
  return sound.waiting ? `Loading, so that the sound does not stutter: ${Math.floor(seconds() - sound.offset)} of ${Math.ceil(reserve())} s …` : "Speaking …";
}

function light(now) {
  const place = at("spoken");
  const lit = [...place.children].findLast((word) => Number(word.dataset.start) <= now);
  const before = place.querySelector(".lit");
  if (lit === before) return;
  before?.classList.remove("lit");
  lit?.classList.add("lit");
  if (!lit || (lit.offsetTop >= place.scrollTop && lit.offsetTop + lit.offsetHeight <= place.scrollTop + place.clientHeight)) return;
  const line = parseFloat(getComputedStyle(place).lineHeight); // whole lines, so that none is cut
  place.scrollTop = Math.floor((lit.offsetTop - place.clientHeight / 3) / line) * line; // not scrollIntoView, which would move the page as well
}

function replay(speech) {
  stop().then(() => {
    clear();
    record = { ...speech, done: true };
    setText(speech.text);
    for (const name of settings) if (speech.asked?.[name] !== undefined) setField(name, speech.asked[name]);
    countText();
    asked = JSON.stringify(request());
    open();
    finish();
    play(0);
    at("player").scrollIntoView({ block: "nearest" });
  });
}

// --- the form ---

// Put a text into the field; the one that it takes the place of can come back.
function setText(text) {
  const before = at("text").value;
  at("back").hidden = !before.trim() || before === text;
  at("back").onclick = () => setText(before);
  at("text").value = text;
  remember("text", text);
  countText();
  show();
}

function setField(name, value) {
  const field = at(name);
  if (!field.options || [...field.options].some((option) => option.value === value)) field.value = value;
  if (name === "voice") fillVocoders();
  if (name === "vocoder") showNoise();
}

async function openFile(file) {
  try {
    if (file.size > LARGEST_FILE) throw new Error(`larger than ${count(LARGEST_FILE / 1000)} kB`);
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    if (text.includes("\0")) throw new Error("no text");
    fail("");
    setText(text.trim());
  } catch (error) {
    fail(`${file.name}: ${error instanceof TypeError ? "no text in UTF-8" : error.message}. Please choose a text file.`);
  }
}

function countText() {
  const found = [...at("text").value].length;
  const most = Number(at("text").dataset.most);
  at("counter").textContent = `${count(found)} of ${count(most)} characters`;
  at("counter").classList.toggle("over", found > most);
  at("speed-shown").textContent = `${Number(at("speed").value).toFixed(2)}×`;
  writeCode();
}

// The request for the current settings, as programs send it.
function writeCode() {
  const body = JSON.stringify({ ...request(), response_format: "wav" });
  const url = new URL("v1/audio/speech", document.baseURI).href;
  const key = document.body.dataset.key;
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  at("curl").textContent = `curl ${quoted(url)} -H 'Content-Type: application/json'${key && ' -H "Authorization: Bearer $TTS_API_KEY"'} -o speech.wav -d ${quoted(body)}`;
  const headers = `{"Content-Type": "application/json"${key && ', "Authorization": f"Bearer {os.environ[\'TTS_API_KEY\']}"'}}`;
  at("python").textContent = [
    `import json, ${key && "os, "}urllib.request\n`,
    `body = ${body}`,
    `request = urllib.request.Request(${JSON.stringify(url)}, json.dumps(body).encode(), ${headers})`,
    'with urllib.request.urlopen(request) as answer, open("speech.wav", "wb") as file:\n    file.write(answer.read())',
  ].join("\n");
}

async function copy(button) {
  const place = at(button.dataset.copies);
  try {
    await navigator.clipboard.writeText(place.textContent);
  } catch {
    getSelection().selectAllChildren(place); // no clipboard without TLS: select it
    document.execCommand("copy");
  }
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), 2000);
}

function fillVoices() {
  at("voice").replaceChildren(...voices.map(({ id }) => new Option(id === "embedded" ? "Embedded voice" : id, id)));
  fillVocoders();
}

const chosenVoice = () => voices.find(({ id }) => id === at("voice").value);

function fillVocoders() {
  const voice = chosenVoice();
  at("vocoder").replaceChildren(...(voice?.vocoders ?? []).map((name) => new Option(name, name)));
  at("who").textContent = voice ? describe(voice) : "";
  at("sample").hidden = !voice;
  silenceSample();
  showNoise();
}

function describe({ speaker, language, words_wrong: wrong }) {
  let name = language;
  try {
    name = new Intl.DisplayNames("en", { type: "language" }).of(language);
  } catch (error) {
    console.warn(error); // no code of a language
  }
  const clear = typeof wrong === "number" ? `; a listener program gets ${Math.max(1, Math.round(100 * wrong))} words in 100 wrong` : "";
  return `${name}${speaker ? `, the voice of ${speaker}` : ""}${clear}.`;
}

// --- a voice by a click ---

let sample = null;

function silenceSample() {
  sample?.pause();
  sample = null;
  at("sample").textContent = "Hear this voice";
}

function playSample() {
  if (sample) return silenceSample();
  if (sound.playing) pause();
  const { id, language } = chosenVoice();
  const query = new URLSearchParams({ voice: id, text: SAMPLES[language.split(/[-_]/)[0]] ?? SAMPLES.en, seed: 1 });
  sample = new Audio(`v1/audio/speech?${query}`);
  sample.volume = Number(at("volume").value);
  at("sample").textContent = "Stop the sample";
  sample.onended = silenceSample;
  sample.onerror = () => {
    silenceSample();
    fail("This voice could not be heard. Please try again in a moment.");
  };
  sample.play().catch((error) => error.name === "AbortError" || sample?.onerror?.());
}

function showNoise() {
  for (const field of document.querySelectorAll(".noise")) field.hidden = !chosenVoice()?.noisy_vocoders.includes(at("vocoder").value);
}

function press() {
  silenceSample();
  const wanted = deed();
  if (wanted === "Speak") speak();
  else if (wanted === "Pause") pause();
  else if (wanted) play(sound.offset);
}

async function loadVoices() {
  const answer = await fetch("v1/voices").catch(() => null);
  const { data, error } = (await answer?.json().catch(() => null)) ?? {};
  if (data) {
    voices = data;
    fillVoices();
    countText();
    say("");
    show();
  } else if (error && error.code !== "not_ready") {
    say("");
    fail(fault(error).message);
  } else {
    say(answer ? "The voice is being loaded …" : "The server does not answer; trying again …");
    setTimeout(loadVoices, 1000);
  }
}

function listenToForm() {
  document.addEventListener("input", ({ target }) => {
    remember("text", at("text").value);
    if (target === at("text")) at("back").hidden = true;
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
    if (event.key === "Escape" && !at("stop").hidden) stop();
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.target !== at("text")) return;
    event.preventDefault();
    silenceSample();
    speak();
  });
  at("stop").onclick = stop;
  at("voice").onchange = fillVocoders;
  at("vocoder").onchange = showNoise;
  at("sample").onclick = playSample;
  at("file").onchange = () => at("file").files[0] && openFile(at("file").files[0]).then(() => (at("file").value = ""));
  for (const button of document.querySelectorAll("[data-text]")) button.onclick = () => setText(button.dataset.text);
  for (const button of document.querySelectorAll("[data-copies]")) button.onclick = () => copy(button);
}

function listenToDrops() {
  const hasFile = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  addEventListener("dragover", (event) => hasFile(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!hasFile(event)) return;
    event.preventDefault();
    openFile(event.dataTransfer.files[0]);
  });
}

function listenToPlayer() {
  at("play").onclick = () => (sound.playing ? pause() : play(sound.offset));
  at("seek").oninput = () => seek(Number(at("seek").value));
  at("volume").oninput = () => {
    if (sound.volume) sound.volume.gain.value = Number(at("volume").value);
    remember("volume", at("volume").value);
  };
  at("spoken").onclick = (event) => event.target.dataset.start && seek(Number(event.target.dataset.start));
  at("details").ontoggle = draw;
  at("forget").onclick = () => confirm(`Delete all ${memory.length} speeches?`) && forget();
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  setInterval(() => (sound.playing || reading) && show(), 50);
}

function begin() {
  at("text").value = note("text") ?? at("text").value;
  at("volume").value = note("volume") ?? 1;
  listenToForm();
  listenToDrops();
  listenToPlayer();
  countText();
  loadVoices();
  openStore();
}

function seek(time) {
  if (sound.playing) play(time);
  else sound.offset = time;
  show();
}

begin();
