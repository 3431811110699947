// Instants come as UTC; people read them in their own zone. In lists they are relative; the exact instant stays in the title.
import { language } from "./words.js";

const form = new Intl.DateTimeFormat(language === "en" ? undefined : language, { dateStyle: "medium", timeStyle: "medium" });
const ago = new Intl.RelativeTimeFormat(language === "en" ? undefined : language, { numeric: "auto", style: "short" });
const SIZES = [
  ["day", 86400],
  ["hour", 3600],
  ["minute", 60],
  ["second", 1],
];
const RELATIVE = "td time, tbody th time, .age time";
const RELATIVE_DAYS = 30;
const TICK_MS = 1000;

export function showTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) show(time);
  const zone = document.getElementById("zone");
  if (zone) zone.textContent = form.resolvedOptions().timeZone;
}

export function keepTimes() {
  setInterval(() => {
    if (document.hidden) return;
    for (const time of document.querySelectorAll(RELATIVE)) show(time);
  }, TICK_MS);
}

function show(time) {
  const instant = new Date(time.dateTime);
  if (Number.isNaN(instant.valueOf())) return;
  const text = time.matches(RELATIVE) ? relative(instant) : form.format(instant);
  if (time.textContent !== text) time.textContent = text;
}

export function relative(instant) {
  const seconds = (instant - Date.now()) / 1000;
  if (Math.abs(seconds) > RELATIVE_DAYS * 86400) return form.format(instant);
  const [unit, size] = SIZES.find(([, one]) => Math.abs(seconds) >= one) ?? ["second", 1];
  return ago.format(Math.trunc(seconds / size), unit);
}

export function duration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toPrecision(3)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.round((seconds % 86400) / 3600)} h`;
}
