// A palette of commands (Ctrl K), and shortcuts: g and a letter goes to a page, / to the filter, ? shows them all.
import { say } from "./words.js";

const LETTERS = { o: "", q: "queues", j: "jobs", b: "batches", w: "workflows", s: "schedules", d: "dead", r: "refusals",
  l: "leases", x: "outbox", f: "flows", e: "orders", n: "nonces", p: "players", k: "workers" };
let after = "";

export function listen() {
  const button = document.getElementById("open-palette");
  if (!button) return;
  button.hidden = false;
  button.addEventListener("click", openPalette);
  document.addEventListener("keydown", pressed);
}

function pressed(event) {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    return openPalette();
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea, dialog *")) return;
  const chord = after + event.key;
  after = event.key === "g" ? "g" : "";
  if (chord.length === 2 && chord[0] === "g" && chord[1] in LETTERS) go(`/console/${LETTERS[chord[1]]}`.replace(/[/]$/, ""));
  else if (event.key === "/") focusFilter(event);
  else if (event.key === "?") showShortcuts();
}

function focusFilter(event) {
  const field = document.querySelector(".filter input, .filter select");
  if (!field) return;
  event.preventDefault();
  field.focus();
}

function go(address) {
  window.location.assign(address);
}

function pages() {
  return [...document.querySelectorAll("#pages a")].map((link) => ({
    words: link.textContent,
    of: link.closest("ul").previousElementSibling?.textContent ?? "",
    address: link.getAttribute("href"),
  }));
}

function found(text) {
  const wanted = text.trim().toLowerCase();
  const named = pages().filter(({ words }) => words.toLowerCase().includes(wanted));
  if (/^[0-9]+$/.test(wanted)) {
    const kinds = ["jobs", "workflows", "batches", "outbox", "orders"];
    return kinds.map((kind) => ({ words: `${say(kind)} ${wanted}`, of: say("by id"), address: `/console/${kind}/${wanted}` }));
  }
  if (wanted) {
    named.push({ words: say("Jobs that contain “{text}”", { text: text.trim() }), of: say("search"), address: `/console/jobs?part=${encodeURIComponent(text.trim())}` });
    named.push({ words: say("Leases that begin with “{text}”", { text: text.trim() }), of: say("search"), address: `/console/leases?prefix=${encodeURIComponent(text.trim())}` });
  }
  return named;
}

function dialogOf(className, name) {
  document.querySelector(`dialog.${className}`)?.remove();
  const dialog = document.createElement("dialog");
  dialog.className = className;
  dialog.setAttribute("aria-label", name);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  return dialog;
}

function openPalette() {
  const dialog = dialogOf("palette", say("Go to"));
  const field = document.createElement("input");
  const list = document.createElement("ul");
  field.type = "text";
  field.setAttribute("role", "combobox");
  field.setAttribute("aria-label", say("A page, an id, or a part of a job"));
  field.setAttribute("aria-expanded", "true");
  field.setAttribute("aria-controls", "palette-list");
  field.placeholder = say("A page, an id, or a part of a job");
  list.id = "palette-list";
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", say("Where to"));
  dialog.append(field, list);
  let at = 0;
  const show = () => {
    const choices = found(field.value);
    at = Math.max(0, Math.min(at, choices.length - 1));
    list.replaceChildren(...choices.map((choice, index) => item(choice, index, index === at)));
    field.setAttribute("aria-activedescendant", choices.length ? `palette-${at}` : "");
  };
  field.addEventListener("input", () => {
    at = 0;
    show();
  });
  field.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      at += step;
      show();
    } else if (event.key === "Enter") {
      event.preventDefault();
      const chosen = found(field.value)[at];
      if (chosen) go(chosen.address);
    }
  });
  show();
  dialog.showModal();
  field.focus();
}

function item({ words, of, address }, index, chosen) {
  const entry = document.createElement("li");
  entry.id = `palette-${index}`;
  entry.setAttribute("role", "option");
  entry.setAttribute("aria-selected", String(chosen));
  const small = document.createElement("small");
  small.textContent = of;
  entry.append(words, small);
  entry.addEventListener("click", () => go(address));
  return entry;
}

function showShortcuts() {
  const dialog = dialogOf("shortcuts-dialog", say("Shortcuts"));
  const heading = document.createElement("h2");
  heading.textContent = say("Shortcuts");
  const list = document.createElement("dl");
  list.className = "shortcuts";
  const names = Object.entries(LETTERS).map(([letter, page]) => [`g ${letter}`, page ? say(page) : say("overview")]);
  for (const [keys, words] of [["Ctrl K", say("go to a page, an id or a job")], ["/", say("filter")], ["?", say("these")], ...names]) {
    const [term, told] = [document.createElement("dt"), document.createElement("dd")];
    const key = document.createElement("kbd");
    key.textContent = keys;
    term.append(key);
    told.textContent = words;
    list.append(term, told);
  }
  const close = document.createElement("button");
  close.type = "button";
  close.textContent = say("Close");
  close.addEventListener("click", () => dialog.close());
  dialog.append(heading, list, close);
  dialog.showModal();
}
