// A part of a page that renews itself, as often as it says, while somebody looks at it and nobody is at work in it.
import { askFirst } from "./questions.js";
import { showTimes } from "./times.js";

export function renew(section) {
  setTimeout(() => look(section), Number(section.dataset.again) * 1000);
}

async function look(section) {
  try {
    if (!document.hidden && !section.contains(document.activeElement)) await replace(section);
  } catch {
    // Nobody answers for a while: what stands there was true, and the next time may be better.
  }
  if (section.dataset.again !== undefined) renew(section);
}

async function replace(section) {
  const answer = await fetch(window.location.href);
  if (!answer.ok || answer.redirected) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.getElementById(section.id);
  if (!fresh) return;
  section.replaceChildren(...fresh.childNodes);
  if (fresh.dataset.again === undefined) section.removeAttribute("data-again");
  showTimes(section);
  askFirst(section);
}
