// A verdict that arrives: each test as it is judged, by server-sent events; at the end the page's own words.
import { showTimes } from "./times.js";

const OVER = new Set(["FINISHED", "DEAD", "CANCELLED"]);
const KINDS = { AC: "good", PA: "part", SE: "ours", SK: "open" };
const STATES = { PENDING: "waiting", DISPATCHED: "waiting", RUNNING: "being judged" };

export function follow(section) {
  const source = new EventSource(section.dataset.follow);
  source.addEventListener("open", () => say("live"));
  source.addEventListener("error", () => say(source.readyState === EventSource.CLOSED ? "not live" : "not live; trying again"));
  source.addEventListener("status", (event) => {
    const status = JSON.parse(event.data);
    if (OVER.has(status.status)) {
      source.close();
      finish(section);
    } else {
      show(section, status);
    }
  });
}

function say(words) {
  document.getElementById("live").textContent = words;
}

function show(section, { status, progress }) {
  section.querySelector("[data-words]").textContent = STATES[status] ?? status.toLowerCase();
  section.querySelector(".told .verdict").replaceWith(badge(status, "open"));
  if (!progress) return;
  const bar = section.querySelector("[data-progress]");
  bar.max = progress.total;
  bar.value = progress.done;
  section.querySelector("[data-count]").textContent = `${progress.done} of ${progress.total} tests`;
  const rows = section.querySelector("[data-tests]");
  for (const test of progress.latest) {
    if (!rows.querySelector(`[data-test="${CSS.escape(test.name)}"]`)) rows.append(row(test));
  }
}

function row({ name, verdict, time_ms, mem_kb }) {
  const made = document.createElement("tr");
  made.dataset.test = name;
  const head = document.createElement("th");
  head.scope = "row";
  head.textContent = name;
  // What a contest withholds is not there.
  const time = time_ms === null || verdict === "SK" ? "" : `${time_ms.toLocaleString("en")} ms`;
  const memory = mem_kb === null || verdict === "SK" ? "" : `${(mem_kb / 1024).toFixed(1)} MiB`;
  const cells = [badge(verdict, KINDS[verdict] ?? "bad"), time, memory, ""];
  made.append(head, ...cells.map(cell));
  return made;
}

function cell(content, place) {
  const made = document.createElement("td");
  if (place === 1 || place === 2) made.className = "figure";
  made.append(content);
  return made;
}

function badge(code, kind) {
  const made = document.createElement("span");
  made.className = `verdict ${kind}`;
  made.textContent = code;
  return made;
}

async function finish(section) {
  say("");
  const answer = await fetch(window.location.href);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const selector of [`#${section.id}`, "dl.facts"]) {
    const [old, fresh] = [document.querySelector(selector), page.querySelector(selector)];
    if (old && fresh) old.replaceChildren(...fresh.childNodes);
  }
  section.removeAttribute("data-follow");
  showTimes(document);
}
