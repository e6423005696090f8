// The demo page: text -> ids (text.js) -> tts.onnx in ONNX Runtime Web -> sound and mel.

import * as ort from "./ort.wasm.min.mjs";
import { sentences, unread } from "./text.js";

const PAUSE = 0.35; // seconds of silence after each sentence but the last
const LONGEST = 250; // symbols of a sentence; attention is unreliable beyond that
const FRAMES = { start: 200, symbol: 12 }; // a sentence is cut beyond so many frames
const SILENCE = Math.log(1e-5); // of a mel

const element = (id) => document.getElementById(id);
const say = (text) => (element("status").textContent = text);
const int64 = (values, dims) => new ort.Tensor("int64", BigInt64Array.from(values, BigInt), dims);

function showError(error) {
  element("error").hidden = !error;
  element("error").textContent = error ? `Error: ${error.message ?? error}` : "";
}

async function download(name, onProgress = () => {}) {
  const response = await fetch(name).catch(() => null);
  if (!response?.ok) throw new Error(`${name} cannot be loaded (${response ? response.status : "no answer"}). Is the directory complete?`);
  const chunks = [];
  let bytes = 0;
  const reader = response.body.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    chunks.push(part.value);
    onProgress((bytes += part.value.length));
  }
  return new Blob(chunks);
}

const downloadJson = async (name) => JSON.parse(await (await download(name)).text());

async function loadVoice() {
  const began = performance.now();
  const [manifest, symbols] = await Promise.all(["export.json", "alphabet.json"].map(downloadJson));
  const size = manifest.files["tts.onnx"].bytes;
  const model = await download("tts.onnx", (bytes) => {
    element("progress").value = bytes / size;
    say(`Loading the voice: ${(bytes / 1e6).toFixed(0)} of ${(size / 1e6).toFixed(0)} MB`);
  });
  element("progress").removeAttribute("value");
  say("Preparing the voice …");
  ort.env.wasm.proxy = true; // a worker computes, so that the page stays responsive
  ort.env.logLevel = "error";
  const session = await ort.InferenceSession.create(new Uint8Array(await model.arrayBuffer()));
  element("progress").value = 1;
  say(`Ready: the voice took ${((performance.now() - began) / 1000).toFixed(1)} s to load.`);
  return { session, symbols, rate: manifest.options.sampling_rate, config: manifest.models.Tacotron2 };
}

async function synthesise(voice, ids, seed) {
  const perStep = voice.config.n_frames_per_step;
  const limit = Math.min(voice.config.max_decoder_steps, Math.ceil((FRAMES.start + FRAMES.symbol * ids.length) / perStep));
  const inputs = { ids: int64(ids, [1, ids.length]), lengths: int64([ids.length], [1]) };
  const outputs = await voice.session.run({ ...inputs, seeds: int64([seed], [1]), max_steps: int64([limit], []) });
  const [, bands, columns] = outputs.mels.dims; // silence fills the columns after the last frame
  const frames = Number(outputs.mel_lengths.data[0]);
  return { audio: outputs.audio.data, mel: { bands, columns, frames, values: outputs.mels.data }, isCut: frames >= limit * perStep };
}

function joinSounds(sounds, pause) {
  const parts = sounds.flatMap((sound, i) => (i ? [new Float32Array(pause), sound] : [sound]));
  const joined = new Float32Array(parts.reduce((length, part) => length + part.length, 0));
  parts.reduce((place, part) => (joined.set(part, place), place + part.length), 0);
  return joined;
}

function wavOf(samples, rate) {
  const bytes = 2 * samples.length;
  const view = new DataView(new ArrayBuffer(44 + bytes));
  const write = (place, text) => [...text].forEach((letter, i) => view.setUint8(place + i, letter.charCodeAt(0)));
  write(0, "RIFF"), view.setUint32(4, 36 + bytes, true), write(8, "WAVEfmt "), view.setUint32(16, 16, true);
  view.setUint16(20, 1, true), view.setUint16(22, 1, true), view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true), view.setUint16(32, 2, true), view.setUint16(34, 16, true);
  write(36, "data"), view.setUint32(40, bytes, true);
  samples.forEach((sample, i) => view.setInt16(44 + 2 * i, Math.round(32767 * Math.max(-1, Math.min(1, sample))), true));
  return new Blob([view], { type: "audio/wav" });
}

function draw(mels) {
  const canvas = element("mel");
  canvas.width = mels.reduce((width, mel) => width + mel.frames, 0);
  canvas.height = mels[0].bands;
  const context = canvas.getContext("2d");
  let left = 0;
  for (const { bands, columns, frames, values } of mels) {
    const image = context.createImageData(columns, bands);
    for (let i = 0; i < columns * bands; i++) {
      const level = Math.max(0, Math.min(1, (values[i] - SILENCE) / (1 - SILENCE)));
      const row = bands - 1 - Math.floor(i / columns); // low frequencies stand at the bottom
      image.data.set([255 * level ** 1.5, 255 * level ** 2.5, 80 + 120 * level * (1 - level), 255], 4 * (row * columns + (i % columns)));
    }
    context.putImageData(image, left, 0, 0, 0, frames, bands);
    left += frames;
  }
}

// Say what of the text this page's small reader of English does not know.
function sayUnread() {
  const found = unread(element("text").value).slice(0, 8).map(([kind, part]) => `“${part}” (${kind})`);
  element("unread").textContent = found.length ? `This page cannot read as it is meant: ${found.join(", ")}. Please write it in words.` : "";
}

async function speak(voice) {
  const began = performance.now();
  const texts = sentences(element("text").value, voice.symbols);
  if (!texts.length) throw new Error("There is nothing to speak. Type a sentence with English letters or numbers.");
  const longest = Math.max(...texts.map((ids) => ids.length));
  if (longest > LONGEST) throw new Error(`A sentence has ${longest} symbols, and ${LONGEST} are the most. Divide it by a full stop.`);
  const speeches = [];
  for (const [i, ids] of texts.entries()) {
    say(`Speaking sentence ${i + 1} of ${texts.length} …`);
    speeches.push(await synthesise(voice, ids, Number(element("seed").value)));
    element("progress").value = (i + 1) / texts.length;
  }
  const samples = joinSounds(speeches.map(({ audio }) => audio), Math.round(PAUSE * voice.rate));
  draw(speeches.map(({ mel }) => mel));
  URL.revokeObjectURL(element("audio").src);
  element("audio").src = URL.createObjectURL(wavOf(samples, voice.rate));
  element("result").hidden = false;
  element("audio").play().catch(() => {}); // a browser may want another key press first
  const [seconds, wait] = [samples.length / voice.rate, (performance.now() - began) / 1000];
  const cut = speeches.some(({ isCut }) => isCut) ? " A sentence did not end by itself and was cut; try another seed." : "";
  say(`${seconds.toFixed(1)} s of speech in ${wait.toFixed(1)} s.${cut}`);
}

async function onSubmit(event, voice) {
  event.preventDefault();
  showError(null);
  element("speak").disabled = true;
  element("progress").removeAttribute("value");
  await speak(voice).catch((error) => (say("Nothing was spoken."), showError(error)));
  element("progress").value = 1;
  element("speak").disabled = false;
}

try {
  const voice = await loadVoice();
  element("form").addEventListener("submit", (event) => onSubmit(event, voice));
  element("text").addEventListener("input", sayUnread);
  sayUnread();
  element("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !element("speak").disabled) element("form").requestSubmit();
  });
  element("speak").disabled = false;
} catch (error) {
  say("The voice could not be loaded.");
  showError(error);
}
