// Keys, texts and pictures of the page.

// Ctrl+Enter (Cmd+Enter on a Mac) in a text speaks, as it sends in mail and chat programs.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || !event.target.closest(".spoken-text")) return;
  event.preventDefault();
  event.target.closest("[role=tabpanel]").querySelector("button.speaks").click();
});

// The length of a text, and the text itself, which a reload keeps.
window.pageText = (() => {
  const texts = new Map(); // and their limits, by name

  function count(name) {
    const counter = document.querySelector(`#${name}-counter`);
    const [text, most] = texts.get(name);
    const found = [...text].length;
    const words = `${found.toLocaleString("en")} of ${most.toLocaleString("en")} characters`;
    if (!counter || counter.textContent === words) return;
    counter.textContent = words;
    counter.classList.toggle("error", found > most);
  }

  function changed(name, text, most) {
    sessionStorage.setItem(name, text);
    texts.set(name, [text, most]);
    count(name);
  }

  function restore(name, text, most) {
    const kept = sessionStorage.getItem(name) ?? text;
    changed(name, kept, most);
    return kept;
  }

  // A tab is drawn when it is opened.
  new MutationObserver(() => texts.forEach((_, name) => count(name))).observe(document, { childList: true, subtree: true });
  return { changed, restore };
})();

// How pictures should look here: dark or light, and the width of the page.
window.pageLook = () => `${document.body.classList.contains("dark") ? "dark" : "light"} ${document.querySelector("main").clientWidth}`;
