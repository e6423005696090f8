// Plays 16-bit samples while they arrive: ttsPlayer.play(token) reads page/audio/TOKEN. The page shows ttsPlayer.status.
window.ttsPlayer = (() => {
  const LEAD = 0.1; // seconds between the arrival of samples and their sound, against gaps
  const START = 3000; // milliseconds within which a browser starts its sound device
  const status = { samples: 0, rate: 0, finished: true, message: "" };
  const sources = new Set();
  let context = null, reading = null, end = 0;

  // A browser starts sound only after a click or a key.
  function unlock() {
    context ??= new AudioContext();
    if (context.state === "suspended") context.resume();
  }
  for (const kind of ["pointerdown", "keydown"]) document.addEventListener(kind, unlock, { capture: true });

  function show(message) {
    status.message = message;
    for (const element of document.querySelectorAll(".player-status")) element.textContent = message;
  }

  function schedule(bytes, rate) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const count = bytes.byteLength >> 1;
    const buffer = context.createBuffer(1, count, rate);
    const channel = buffer.getChannelData(0);
    for (let i = 0; i < count; i++) channel[i] = view.getInt16(2 * i, true) / 32768;
    const source = context.createBufferSource();
    source.buffer = buffer;
    source.connect(context.destination);
    end = Math.max(end, context.currentTime + LEAD);
    source.start(end);
    end += count / rate;
    sources.add(source);
    source.onended = () => {
      sources.delete(source);
      if (status.finished && sources.size === 0) show("");
    };
    status.samples += count;
  }

  // Firefox never starts on a machine without a sound device, for example.
  function checkSound(own) {
    if (own !== reading || own.signal.aborted || context.state === "running") return;
    show("This browser does not start its sound. The finished audio is below.");
  }

  function stop() {
    reading?.abort();
    for (const source of sources) source.stop();
    sources.clear();
    end = 0;
    status.finished = true;
    show("");
  }

  async function play(token) {
    stop();
    if (!token) return;
    unlock();
    const own = reading = new AbortController();
    Object.assign(status, { samples: 0, rate: 0, finished: false });
    show("Playing while it is computed");
    try {
      const response = await fetch(`page/audio/${token}`, { signal: own.signal });
      if (!response.ok) throw new Error(`HTTP ${response.status}`);
      const rate = status.rate = Number(response.headers.get("X-Sampling-Rate"));
      const reader = response.body.getReader();
      let rest = new Uint8Array(0);
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        const bytes = new Uint8Array(rest.length + value.length);
        bytes.set(rest);
        bytes.set(value, rest.length);
        const even = bytes.length & ~1; // a sample may be cut in two
        rest = bytes.slice(even);
        if (even) schedule(bytes.slice(0, even), rate);
      }
      if (sources.size === 0) show(""); // an error of the server, before any sound
      else setTimeout(checkSound, START, own);
    } catch (error) {
      if (own.signal.aborted) return;
      show(`The audio stopped early: ${error.message}`);
    } finally {
      if (own === reading) status.finished = true;
    }
  }

  window.addEventListener("pagehide", stop); // otherwise a browser that keeps the page for its Back button would go on reading

  return { play, stop, status };
})();
