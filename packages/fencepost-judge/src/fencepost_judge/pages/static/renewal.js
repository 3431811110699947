// A part of a page that reloads itself at its own interval, while the page is visible and the user is not typing in it.
import { askFirst } from "./questions.js";
import { colourBalloons } from "./contest.js";
import { showTimes } from "./times.js";

export function renew(section) {
  setTimeout(() => look(section), Number(section.dataset.again) * 1000);
}

async function look(section) {
  try {
    if (!document.hidden && !section.contains(document.activeElement)) await replace(section);
  } catch {
    // The server does not answer: the old content stays, and the next interval tries again.
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
  colourBalloons(section);
}
