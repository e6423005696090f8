"use strict";
// What the browser keeps: the text, the volume, and earlier speeches. Every store is optional, since browsers may refuse each.

const KEPT = 30; // speeches
const MOST_KEPT = 60; // MB of them
const memory = []; // the speeches, also where there is no store
let store = null;
let refused = "This browser has not opened its store yet: speeches are here until you close this page."; // "" once it has
let tabs = null; // channel to the page's other tabs

const note = (name) => {
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // site data is blocked
  }
};

const remember = (name, value) => {
  try {
    localStorage.setItem(name, value);
  } catch {
    // blocked or full: it is kept until the page is closed
  }
};

const done = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = request.onblocked = () => reject(request.error);
  });

async function openStore() {
  try {
    const request = indexedDB.open("speeches", 1);
    request.onupgradeneeded = () => request.result.createObjectStore("speeches", { keyPath: "when" });
    store = await done(request);
    store.onversionchange = () => store.close();
    await load();
  } catch (error) {
    console.warn(error);
    refused = "This browser keeps nothing for this page: speeches are here until you close it.";
    list();
  }
  try {
    tabs = new BroadcastChannel("speeches");
    tabs.onmessage = () => load().catch(console.warn);
  } catch (error) {
    console.warn(error);
  }
}

// Take what the store has, and keep what it has refused.
async function load() {
  const found = (await done(store.transaction("speeches").objectStore("speeches").getAll())).filter((one) => one.samples?.length && one.settings);
  const own = memory.filter((one) => one.unkept);
  memory.splice(0, memory.length, ...found, ...own);
  refused = "";
  for (const one of own) await put(one);
  await trim();
  list();
}

// Change the store, and tell other tabs. Returns false where there is none, or it refuses.
async function change(work) {
  try {
    if (!store) return false;
    const transaction = store.transaction("speeches", "readwrite");
    work(transaction.objectStore("speeches"));
    await new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = () => reject(transaction.error); // a full disk is found at the end
    });
    tabs?.postMessage("changed");
    return true;
  } catch (error) {
    console.warn(error); // the disk is full, for example
    return false;
  }
}

async function keep(speech) {
  const { arrivals, stalls, decoding, packed, ...kept } = speech;
  memory.push(kept);
  list();
  await put(kept);
  await trim();
  list();
}

async function put(speech) {
  const { unkept, ...kept } = speech;
  speech.unkept = !(await change((place) => place.put(kept)));
  if (store && speech.unkept) refused = "The browser's store is full: the latest speeches are here until you close this page.";
}

async function trim() {
  memory.sort((a, b) => a.when - b.when);
  const size = () => memory.reduce((sum, one) => sum + one.samples.byteLength + sizeOf(one.mp3), 0) / 1e6;
  while (memory.length > 1 && (memory.length > KEPT || size() > MOST_KEPT)) {
    const { when } = memory.shift();
    await change((place) => place.delete(when));
  }
}

const sizeOf = (parts = []) => parts.reduce((sum, part) => sum + part.length, 0);

async function discard(speech) {
  memory.splice(memory.indexOf(speech), 1);
  list();
  await change((place) => place.delete(speech.when));
}

async function forget() {
  memory.length = 0;
  list();
  await change((place) => place.clear());
}

function list() {
  const items = [...memory].reverse().map((speech) => {
    const [item, button, text, about, remove] = ["li", "button", "span", "span", "button"].map((name) => document.createElement(name));
    text.textContent = speech.text;
    const part = speech.part ? "part of the text, " : "";
    about.textContent = `${part}${speech.settings.voice || "default voice"}, ${clock(speech.length / speech.rate)}, ${new Date(speech.when).toLocaleString([], { dateStyle: "medium", timeStyle: "short" })}`;
    [text.className, about.className, button.type, remove.type] = ["excerpt", "about", "button", "button"];
    [remove.className, remove.textContent] = ["remove", "×"];
    remove.setAttribute("aria-label", `Delete: ${speech.text.slice(0, 60)}`);
    remove.title = "Delete this speech";
    button.append(text, about);
    button.onclick = () => replay(speech);
    remove.onclick = () => {
      discard(speech);
      (document.querySelector("#history li button") ?? at("text")).focus();
    };
    item.append(button, remove);
    return item;
  });
  document.querySelector("#history ol").replaceChildren(...items);
  at("limit").textContent = refused || `This browser keeps the latest ${KEPT}, up to ${MOST_KEPT} MB, until you delete them.`;
  at("history").hidden = !items.length;
}
