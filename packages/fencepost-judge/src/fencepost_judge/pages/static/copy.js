// A button beside what is copied often. Without scripts the text is selected by hand.
export function offerCopy(source) {
  const place = document.createElement("div");
  place.className = "copied";
  source.replaceWith(place);
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await copy(source.textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  place.append(source, button);
}

// Over plain HTTP browsers have no clipboard for scripts, and copy what is selected.
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
