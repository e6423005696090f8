// Of Gradio 6.31: names of buttons for screen readers that do not have the words on them.
() => new MutationObserver(() => {
  for (const button of document.querySelectorAll("button.upload-container[aria-label], button.playback[aria-label]"))
    button.removeAttribute("aria-label");
}).observe(document.body, { subtree: true, childList: true, attributes: true, attributeFilter: ["aria-label"] })
