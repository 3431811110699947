// Figures that move. Only pages with figures or lists open a stream; one that is hidden closes it.
import { duration, showTimes } from "./times.js";
import { readCharts } from "./charts.js";
import { language, say } from "./words.js";

// A server that is frozen keeps its connection: only the clock tells.
let patience = 4000;

let source = null;
let charted = Date.now();
let heard = Date.now();

export function watch() {
  if (!document.querySelector("[data-live], [data-table]")) return;
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  setInterval(notice, 1000);
  open();
}

function notice() {
  const silent = Date.now() - heard;
  if (source && silent > patience) tell(say("no answer for {seconds} s", { seconds: Math.round(silent / 1000) }));
}

function open() {
  if (source) return;
  heard = Date.now();
  source = new EventSource("/api/events");
  source.addEventListener("look", (event) => show(JSON.parse(event.data)));
  source.addEventListener("error", () => tell(say("not live; trying again")));
}

function close() {
  source?.close();
  source = null;
}

function tell(words) {
  document.getElementById("live").textContent = words;
}

function show(look) {
  heard = Date.now();
  patience = 2000 * (look.every_seconds ?? 2);
  tell(say("live"));
  for (const place of document.querySelectorAll("[data-figure]")) {
    const value = look[place.dataset.figure];
    put(place, place.dataset.unit === "s" ? duration(value) : value.toLocaleString(language));
    const tile = place.closest("[data-attention]");
    tile?.classList.toggle("attention", value > 0);
  }
  for (const queue of look.queues) {
    queue.later = queue.pending - queue.due;
    const row = document.querySelector(`tr[data-queue="${CSS.escape(queue.queue)}"]`);
    for (const cell of row?.querySelectorAll("[data-count]") ?? []) {
      put(cell.querySelector("a") ?? cell, queue[cell.dataset.count].toLocaleString(language));
    }
  }
  showNeeds(look.needs);
  redraw();
}

function put(place, text) {
  if (place.textContent === text) return;
  place.textContent = text;
  place.classList.add("changed");
  place.addEventListener("animationend", () => place.classList.remove("changed"), { once: true });
}

function showNeeds(needs) {
  const list = document.getElementById("needs-list");
  if (!list || list.contains(document.activeElement)) return;
  list.replaceChildren(...(needs.length ? needs.map(need) : [nothing()]));
}

function need({ count, message, named, where }) {
  const link = document.createElement("a");
  const number = document.createElement("b");
  number.textContent = count.toLocaleString(language);
  link.append(number, ` ${say(message, named)}`);
  // Only ever a page of ours: the server wrote it, and a name inside it is a parameter.
  link.href = where.startsWith("/console/") ? where : "/console";
  const item = document.createElement("li");
  item.append(link);
  return item;
}

function nothing() {
  const item = document.createElement("li");
  item.className = "none";
  item.textContent = say("Nothing.");
  return item;
}

// Once a minute a new minute is added, but not while a chart is being read.
async function redraw() {
  const charts = document.getElementById("charts");
  if (!charts || Date.now() - charted < 60_000 || charts.contains(document.activeElement)) return;
  charted = Date.now();
  const answer = await fetch(window.location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok || answer.redirected) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("charts");
  if (!fresh) return;
  charts.replaceChildren(...fresh.children);
  showTimes(charts);
  readCharts(charts);
}
