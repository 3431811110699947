// What a list gains with scripts: cards on a phone, a count of what is selected, and rows that are read again while the page is
// in sight.
import { askFirst } from "./questions.js";
import { showTimes } from "./times.js";
import { say } from "./words.js";

const PERIOD_MS = 5000;

export function improveLists(root) {
  for (const region of root.querySelectorAll(".scroll[data-table]")) improve(region);
  countSelected();
}

export function keepLists() {
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-select], [data-select-all]")) select(event.target);
  });
  setInterval(again, PERIOD_MS);
}

function improve(region) {
  const table = region.querySelector("table");
  if (table.id === "figures") return;
  const heads = [...(table.tHead?.rows[0]?.cells ?? [])];
  table.classList.add("cards");
  for (const [role, elements] of Object.entries({
    table: [table],
    row: table.rows,
    columnheader: heads,
  })) {
    for (const element of elements) element.setAttribute("role", role);
  }
  for (const head of heads) if (head.classList.contains("select")) addSelectAll(head);
  label(table, heads);
}

function label(table, heads) {
  for (const row of table.tBodies[0]?.rows ?? []) {
    [...row.cells].forEach((cell, index) => {
      cell.setAttribute("role", cell.tagName === "TH" ? "rowheader" : "cell");
      if (cell.colSpan > 1) return;
      const words = heads[index]?.querySelector(".hidden") ? "" : heads[index]?.textContent.trim();
      if (words) cell.dataset.label = words;
      cell.classList.toggle("blank", !cell.textContent.trim() && !cell.firstElementChild);
    });
  }
}

function addSelectAll(head) {
  if (head.querySelector("input")) return;
  const box = document.createElement("input");
  box.type = "checkbox";
  box.dataset.selectAll = "";
  box.setAttribute("aria-label", say("Select all that are shown"));
  head.replaceChildren(box);
}

function select(box) {
  if ("selectAll" in box.dataset) {
    for (const one of document.querySelectorAll("[data-select]")) one.checked = box.checked;
  }
  countSelected();
}

function countSelected() {
  const words = document.querySelector("[data-selected]");
  if (!words) return;
  const count = document.querySelectorAll("[data-select]:checked").length;
  words.textContent = count ? say("{count} selected:", { count }) : words.dataset.selected;
  for (const button of words.closest("form").querySelectorAll("button")) button.disabled = count === 0;
}

function isRead() {
  const main = document.getElementById("main");
  return (
    document.hidden ||
    document.querySelector("dialog[open], [data-select]:checked, [data-refresh]") !== null ||
    main.querySelector(".scroll details[open]") !== null ||
    (main.contains(document.activeElement) && document.activeElement.matches("input, select, textarea, td *"))
  );
}

async function again() {
  if (isRead() || !document.querySelector(".scroll[data-table]")) return;
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => null);
  // A server that does not answer is said at the top of the page; the rows stay, and so does their age.
  if (!answer?.ok || answer.redirected || isRead()) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const region of document.querySelectorAll(".scroll[data-table]")) {
    const body = page.querySelector(`.scroll[data-table="${CSS.escape(region.dataset.table)}"] tbody`);
    const old = region.querySelector("tbody");
    if (!body || !old || region.closest("#charts")) continue;
    old.replaceWith(document.adoptNode(body));
    showTimes(region);
    askFirst(region);
    improve(region);
  }
  // The figures above the lists are as old as these; those with data-live have a stream of their own.
  for (const selector of [".age", "#headline", ".tiles:not([data-live])"]) {
    const [old, fresh] = [document.querySelector(selector), page.querySelector(selector)];
    if (!old || !fresh || old.contains(document.activeElement)) continue;
    old.replaceWith(document.adoptNode(fresh));
    showTimes(fresh);
  }
  countSelected();
}
