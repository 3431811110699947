// A part of a page that is not over yet is read again every few seconds, until it is; not while its tab is hidden, nor
// while a person reads or fills something in it.
import { askFirst } from "./questions.js";
import { improveLists } from "./lists.js";
import { showTimes } from "./times.js";

export function refresh(page) {
  const part = page.querySelector("[data-refresh]");
  if (part) setTimeout(() => again(part), Number(part.dataset.refresh) * 1000);
}

async function again(part) {
  if (document.hidden) return document.addEventListener("visibilitychange", () => again(part), { once: true });
  if (isRead(part)) return refresh(document);
  const answer = await fetch(window.location.href, { headers: { Accept: "text/html" } }).catch(() => null);
  if (answer?.redirected) return;
  const text = answer?.ok ? await answer.text() : "";
  const page = new DOMParser().parseFromString(text, "text/html");
  const fresh = page.getElementById(part.id);
  if (fresh && !isRead(part)) {
    part.replaceWith(fresh);
    document.querySelector("h1").replaceWith(page.querySelector("h1"));
    showTimes(fresh);
    askFirst(fresh);
    improveLists(fresh);
  }
  // A server that does not answer is asked again: the page says so no more than any other.
  refresh(document);
}

function isRead(part) {
  return part.contains(document.activeElement) || part.querySelector("details[open]") !== null;
}
