// Speech on the page: plays lines of JSON while they arrive from page/audio/TOKEN, keeps what is finished, and shows both.
window.ttsPlayer = (() => {
  const LEAD = 0.1; // seconds between the arrival of samples and their sound, against gaps
  const START = 3000; // milliseconds within which a browser starts its sound device
  const SHOWN = 10000; // milliseconds that an error stays
  const KEPT = 50; // finished speeches in the history
  const status = { samples: 0, rate: 0, finished: true, message: "" }; // of the last speech that was played aloud
  const panels = new Map(); // by name
  let context = null;

  // A browser starts sound only after a click or a key.
  function unlock() {
    context ??= new AudioContext();
    if (context.state === "suspended") context.resume();
  }
  for (const kind of ["pointerdown", "keydown"]) document.addEventListener(kind, unlock, { capture: true });

  function panelOf(name) {
    if (!panels.has(name)) panels.set(name, { name, reading: null, sources: new Set(), end: 0, marks: [], words: [], timer: 0 });
    return panels.get(name);
  }
  const part = (panel, kind) => document.querySelector(`#${panel.name}-player .${kind}`);

  function show(panel, message, isError = false) {
    clearTimeout(panel.timer);
    const element = part(panel, "message");
    element.textContent = message;
    element.classList.toggle("error", isError);
    if (isError) panel.timer = setTimeout(show, SHOWN, panel, "");
    status.message = message;
  }

  function update() {
    const busy = [...panels.values()].some((panel) => panel.reading || panel.sources.size || part(panel, "sound")?.paused === false);
    for (const button of document.querySelectorAll("button.stops")) button.disabled = !busy;
  }

  // An error has been read once somebody types again.
  document.addEventListener("input", () => {
    for (const panel of panels.values()) if (part(panel, "message")?.classList.contains("error")) show(panel, "");
  });

  function schedule(panel, samples, rate) {
    const buffer = context.createBuffer(1, samples.length, rate);
    buffer.getChannelData(0).set(Float32Array.from(samples, (sample) => sample / 32768));
    const source = context.createBufferSource();
    source.buffer = buffer;
    source.connect(context.destination);
    panel.end = Math.max(panel.end, context.currentTime + LEAD);
    source.start(panel.end);
    panel.marks.push({ at: panel.end, first: panel.record.samples / rate, seconds: samples.length / rate });
    panel.end += samples.length / rate;
    panel.sources.add(source);
    source.onended = () => {
      panel.sources.delete(source);
      update();
    };
  }

  // Firefox never starts on a machine without a sound device, for example.
  function checkSound(panel, own) {
    if (own !== panel.own || context.state === "running" || !panel.sources.size) return;
    silence(panel);
    show(panel, "This browser does not start its sound. The finished audio is below.");
  }

  // Stop a panel's sound, except that of one player; what is being computed goes on.
  function silence(panel, except = null) {
    for (const source of panel.sources) source.stop();
    panel.sources.clear();
    panel.marks = [];
    panel.end = 0;
    const sound = part(panel, "sound");
    if (sound !== except) sound?.pause();
    update();
  }

  function stop() {
    for (const panel of panels.values()) {
      if (panel.reading) show(panel, "Stopped.");
      panel.reading?.abort();
      panel.reading = null;
      silence(panel);
    }
    status.finished = true;
  }

  // The text, with an element for each word that has a time.
  function write(panel, record) {
    const place = part(panel, "text");
    place.replaceChildren();
    panel.words = [];
    let written = 0;
    for (const word of record.words) {
      const start = record.text.indexOf(word.word, written);
      if (start < 0) continue;
      const element = document.createElement("span");
      element.textContent = word.word;
      place.append(record.text.slice(written, start), element);
      written = start + word.word.length;
      panel.words.push({ element, start: word.start_time, end: word.end_time });
    }
    place.append(record.text.slice(written));
  }

  // Seconds of the speech that are heard now; null while nothing is.
  function position(panel) {
    const sound = part(panel, "sound");
    if (sound && !sound.paused) return sound.currentTime;
    const mark = panel.marks.findLast((mark) => mark.at <= context.currentTime);
    return panel.sources.size && mark ? mark.first + Math.min(mark.seconds, context.currentTime - mark.at) : null;
  }

  function follow() {
    for (const panel of panels.values()) {
      const now = part(panel, "text") && panel.words.length ? position(panel) : null;
      const spoken = now === null ? undefined : panel.words.findLast((word) => word.start <= now);
      if (spoken?.element === panel.spoken) continue;
      panel.spoken?.classList.remove("spoken");
      spoken?.element.classList.add("spoken");
      panel.spoken = spoken?.element;
    }
    requestAnimationFrame(follow);
  }
  requestAnimationFrame(follow);

  const bytesOf = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));

  function receive(panel, line, aloud) {
    const record = panel.record;
    if (line.error) throw new Error(line.error);
    if (line.text) record.text += line.text;
    Object.assign(record, line.about);
    record.words.push(...(line.timestamps ?? []));
    if (line.text || line.timestamps?.length) write(panel, record);
    if (line.audio) {
      const samples = new Int16Array(bytesOf(line.audio).buffer); // little-endian, as every browser's machine is
      if (aloud) schedule(panel, samples, record.rate);
      if (aloud && !record.samples) show(panel, "Speaking …");
      record.parts.push(samples);
      record.samples += samples.length;
      if (aloud) Object.assign(status, { samples: record.samples, rate: record.rate });
    }
    if (line.mp3) finish(panel, line);
  }

  function finish(panel, line) {
    const record = panel.record;
    record.message = line.message;
    record.wav = URL.createObjectURL(new Blob([wavHeader(record.samples, record.rate), ...record.parts], { type: "audio/wav" }));
    record.mp3 = URL.createObjectURL(new Blob([bytesOf(line.mp3)], { type: "audio/mpeg" }));
    record.parts = [];
    load(panel, record);
    remember(panel, record);
  }

  function wavHeader(samples, rate) {
    const view = new DataView(new ArrayBuffer(44));
    [..."RIFF....WAVEfmt ....................data...."].forEach((letter, place) => view.setUint8(place, letter.charCodeAt(0)));
    view.setUint32(4, 36 + 2 * samples, true);
    [16, 1 | (1 << 16), rate, 2 * rate, 2 | (16 << 16)].forEach((value, place) => view.setUint32(16 + 4 * place, value, true));
    view.setUint32(40, 2 * samples, true);
    return view;
  }

  // Show a finished speech in the panel's player.
  function load(panel, record) {
    write(panel, record);
    show(panel, record.message);
    const sound = part(panel, "sound");
    sound.src = record.wav;
    sound.onplay = () => {
      for (const other of panels.values()) silence(other, sound);
    };
    sound.onpause = update;
    link(part(panel, "files"), record);
    part(panel, "finished").hidden = false;
  }

  function link(place, record) {
    const words = record.text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? ["speech"];
    place.replaceChildren(
      ...["wav", "mp3"].map((kind) => Object.assign(document.createElement("a"), {
        href: record[kind], download: `${words.slice(0, 6).join("-")}.${kind}`, textContent: `Download ${kind}`,
      })),
    );
  }

  function remember(panel, record) {
    const history = document.querySelector(`#${panel.name}-history`);
    if (!history) return;
    const entry = document.createElement("li");
    const play = Object.assign(document.createElement("button"), { type: "button", textContent: "Play" });
    play.ariaLabel = `Play: ${record.text.slice(0, 60)}`;
    play.onclick = () => {
      stop();
      load(panel, record);
      part(panel, "sound").play();
    };
    const text = Object.assign(document.createElement("span"), { className: "said", textContent: record.text, title: record.text });
    const about = Object.assign(document.createElement("span"), {
      className: "about", textContent: `${record.voice} · ${(record.samples / record.rate).toFixed(1)} s`,
    });
    const files = Object.assign(document.createElement("span"), { className: "files" });
    link(files, record);
    entry.append(play, text, about, files);
    const list = history.querySelector("ol");
    list.prepend(entry);
    for (const old of [...list.children].slice(KEPT)) {
      for (const file of old.querySelectorAll("a")) URL.revokeObjectURL(file.href);
      old.remove();
    }
    history.hidden = false;
  }

  async function* linesOf(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) yield JSON.parse(line);
    }
  }

  // Read a speech into the panel `name`, and play it if `aloud`.
  async function play(name, token, aloud = true) {
    const panel = panelOf(name);
    panel.reading?.abort();
    silence(panel);
    if (!token) return;
    unlock();
    const own = panel.own = panel.reading = new AbortController();
    const record = panel.record = { text: "", rate: 0, voice: "", samples: 0, parts: [], words: [] };
    if (aloud) {
      for (const other of panels.values()) silence(other);
      Object.assign(status, { samples: 0, rate: 0, finished: false });
    }
    part(panel, "finished").hidden = true;
    write(panel, record);
    show(panel, "Computing …");
    update();
    try {
      const response = await fetch(`page/audio/${token}`, { signal: own.signal });
      if (!response.ok) throw new Error(`The audio is gone (${response.status}). Please try again.`);
      for await (const line of linesOf(response)) if (own === panel.reading) receive(panel, line, aloud);
      if (aloud) setTimeout(checkSound, START, panel, own);
      if (!record.wav) throw new Error("The audio stopped early. Please try again.");
    } catch (error) {
      if (own.signal.aborted) return;
      show(panel, error instanceof TypeError ? "The server does not answer. Please try again later." : error.message, true);
    } finally {
      if (own === panel.reading) {
        panel.reading = null;
        if (aloud) status.finished = true;
      }
      update();
    }
  }

  window.addEventListener("pagehide", stop); // otherwise a browser that keeps the page for its Back button would go on reading
  new MutationObserver(update).observe(document.documentElement, { childList: true, subtree: true });

  return { play, stop, status };
})();
