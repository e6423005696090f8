"use strict";
// Sound: samples scheduled one after another, with the reserve that a slow server or line needs, and files of a slow line decoded.

const LEAD = 0.1; // seconds between the arrival of samples and their sound, against gaps
const LEAST = 0.2; // seconds of sound with which it begins
const SURE = 0.9; // share of the measured pace that is counted on
const RECENT = 8; // seconds over which the pace is measured
const START = 3000; // milliseconds within which a browser starts its sound device
const PACE = 15; // characters in a second of speech, until its words have times
const HELD_BACK = 0.1; // seconds at the end of a file's decoded part that its next bytes may change

// `playing`: it is to be heard; `waiting`: for the reserve. A browser starts its sound only after a click or a key.
const sound = { context: null, volume: null, playing: false, waiting: false, offset: 0, base: 0, scheduled: 0, sources: new Set() };
let usualPace = null; // of the speech before: seconds of sound a second

function unlock() {
  try {
    if (!sound.context) {
      sound.context = new AudioContext();
      sound.volume = new GainNode(sound.context, { gain: Number(at("volume").value) });
      sound.volume.connect(sound.context.destination);
    }
    if (sound.context.state === "suspended") sound.context.resume().catch(console.warn);
  } catch (error) {
    console.warn(error); // no sound device, or too many pages that have it: the files remain
    sound.context = null;
  }
  return sound.context;
}

const seconds = () => (record ? record.length / record.rate : 0);

function position() {
  if (!sound.playing || sound.waiting) return sound.offset;
  const heard = sound.offset + Math.max(0, sound.context.currentTime - sound.base);
  return Math.min(heard, sound.scheduled / record.rate);
}

function silence() {
  for (const source of sound.sources) source.stop();
  sound.sources.clear();
  sound.playing = sound.waiting = false;
}

function pause() {
  sound.offset = record ? position() : 0;
  silence();
  show();
}

function play(from) {
  silence();
  sound.offset = from;
  if (!unlock()) return fail("This browser has no sound to play with. The files below have the speech.");
  sound.playing = sound.waiting = true;
  schedule();
  show();
  setTimeout(checkSound, START);
}

function schedule() {
  const { context } = sound;
  if (!sound.playing) return;
  if (sound.waiting) {
    if (seconds() - sound.offset < reserve()) return;
    Object.assign(sound, { waiting: false, base: context.currentTime + LEAD, scheduled: Math.round(sound.offset * record.rate) });
  }
  const samples = record.samples.subarray(sound.scheduled, record.length);
  if (!samples.length) return;
  const when = sound.base + sound.scheduled / record.rate - sound.offset;
  if (when < context.currentTime) return starve();
  const buffer = context.createBuffer(1, samples.length, record.rate);
  buffer.getChannelData(0).set(Float32Array.from(samples, (sample) => sample / 32768));
  const source = context.createBufferSource();
  source.buffer = buffer;
  source.connect(sound.volume);
  source.start(when);
  source.onended = () => sound.sources.delete(source);
  sound.sources.add(source);
  sound.scheduled = record.length;
}

// The samples are late: collect more of them than the pace seemed to need.
function starve() {
  const now = position();
  silence();
  Object.assign(sound, { offset: now, playing: true, waiting: true });
  record.stalls += 1;
  schedule();
}

// The seconds of sound that let the rest follow without a gap: at a pace below 1, the end is computed or sent after its time.
function reserve() {
  if (record.done) return 0;
  const left = Math.max(seconds(), expected()) - sound.offset;
  return Math.max(LEAST, left * (1 - SURE ** (1 + record.stalls) * pace()));
}

function expected() {
  const { text, words, written } = record;
  return written ? (words.at(-1).end_time * text.length) / written : text.length / PACE / at("speed").value;
}

// The slower of the pace lately and of that since the request, unless speeches before were faster than this one's beginning.
function pace() {
  const { began, arrivals } = record;
  const [first, last] = [arrivals[0], arrivals.at(-1)];
  const lately = last.time > first.time ? (last.before - first.before) / (last.time - first.time) : Infinity;
  return Math.min(lately, Math.max(seconds() / Math.max(last.time - began, 0.001), usualPace ?? 0));
}

function noteArrival(before) {
  const time = performance.now() / 1000;
  record.arrivals.push({ time, before });
  while (record.arrivals.length > 2 && record.arrivals[1].time < time - RECENT) record.arrivals.shift();
}

function append(samples) {
  const isFirst = !record.length;
  if (record.length + samples.length > record.samples.length) {
    const larger = new Int16Array(2 * record.samples.length + samples.length);
    larger.set(record.samples.subarray(0, record.length));
    record.samples = larger;
  }
  record.samples.set(samples, record.length);
  noteArrival(seconds());
  record.length += samples.length;
  if (isFirst) open();
  if (isFirst) play(0);
  else schedule();
}

// --- a slow line brings mp3, of which what is new is decoded ---

// Is the line too slow for samples, which take 59 kB/s? What the page itself took to arrive says so, or an earlier speech.
function isSlow() {
  if (slowLine !== null) return slowLine;
  const { saveData, downlink } = navigator.connection ?? {};
  const sent = performance.getEntriesByType("resource").filter((entry) => entry.transferSize > 5000);
  const rates = sent.map((entry) => entry.transferSize / Math.max(entry.responseEnd - entry.responseStart, 1)); // kB/s
  return Boolean(saveData) || (rates.length ? Math.max(...rates) < 150 : downlink < 1.2);
}

async function decode(speech, isWhole) {
  if (!speech.packed || speech.decoding || !speech.mp3.length) return;
  speech.decoding = true;
  try {
    const bytes = await new Blob(speech.mp3).arrayBuffer();
    const all = (await new OfflineAudioContext(1, 1, speech.rate).decodeAudioData(bytes)).getChannelData(0);
    const end = all.length - (isWhole ? 0 : Math.round(HELD_BACK * speech.rate));
    const fresh = all.subarray(speech.length, end);
    if (record === speech && fresh.length) append(Int16Array.from(fresh, (value) => Math.max(-32768, Math.min(32767, Math.round(32767 * value)))));
  } catch (error) {
    console.warn(error); // too few bytes yet for a frame
  } finally {
    speech.decoding = false;
  }
}

async function decodeRest(speech) {
  while (speech.decoding) await new Promise((resolve) => setTimeout(resolve, 20));
  await decode(speech, true);
}

// Some browsers never start without a sound device.
function checkSound() {
  if (!sound.playing || sound.context.state === "running") return;
  pause();
  fail("This browser does not start its sound. The files below have the speech.");
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
