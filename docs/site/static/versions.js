// Versions stand side by side as folders; versions.json above them lists them. From a folder of files, or with one
// version only, the present one is all that is shown.
document.addEventListener("DOMContentLoaded", async () => {
  const place = document.querySelector(".versions");
  if (!place || !location.protocol.startsWith("http")) return;
  const root = new URL(place.dataset.root || "./", location.href);
  const answer = await fetch(new URL("../versions.json", root)).catch(() => null);
  if (!answer || !answer.ok) return;
  const select = place.querySelector("select");
  const versions = await answer.json();
  select.replaceChildren(...versions.map((name) => new Option(name, name, false, name === place.dataset.version)));
  select.disabled = versions.length < 2;
  select.addEventListener("change", () => {
    location.href = new URL(`../${select.value}/docs/README.html`, root).href;
  });
});
