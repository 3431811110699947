// What a list gains with scripts: columns that sort the rows that are shown, cards on a phone, a count of what is selected,
// and rows that are read again while the page is in sight. The order stays in the address.
import { askFirst } from "./questions.js";
import { showTimes } from "./times.js";

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
  heads.forEach((head, index) => {
    if (head.classList.contains("select")) return addSelectAll(head);
    const words = head.textContent.trim();
    if (!words || head.querySelector(".hidden, .sort")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.textContent = words;
    button.addEventListener("click", () => order(region, index));
    head.replaceChildren(button);
    head.setAttribute("aria-sort", "none");
  });
  label(table, heads);
  const wanted = (new URLSearchParams(location.search).get("sort") ?? "").split(":");
  if (wanted[0] === region.dataset.table && heads[wanted[1]]) sort(region, Number(wanted[1]), wanted[2] === "-");
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

function order(region, index) {
  const head = region.querySelector("thead tr").cells[index];
  const descending = head.getAttribute("aria-sort") === "ascending";
  sort(region, index, descending);
  const address = new URL(location.href);
  address.searchParams.set("sort", `${region.dataset.table}:${index}:${descending ? "-" : "+"}`);
  history.replaceState(null, "", address);
}

function sort(region, index, descending) {
  const table = region.querySelector("table");
  const rows = [...table.tBodies[0].rows].filter((row) => row.cells[index]?.colSpan === 1);
  const sign = descending ? -1 : 1;
  const compare = new Intl.Collator(undefined, { numeric: true });
  const keys = new Map(rows.map((row) => [row, key(row.cells[index])]));
  rows.sort((one, other) => {
    const [a, b] = [keys.get(one), keys.get(other)];
    if (a === "" || b === "") return (a === "") - (b === "");
    return sign * (typeof a === "number" && typeof b === "number" ? a - b : compare.compare(a, b));
  });
  table.tBodies[0].append(...rows);
  for (const head of table.tHead.rows[0].cells) if (head.hasAttribute("aria-sort")) head.setAttribute("aria-sort", "none");
  table.tHead.rows[0].cells[index].setAttribute("aria-sort", descending ? "descending" : "ascending");
}

function key(cell) {
  const time = cell.querySelector("time");
  if (time) return Date.parse(time.dateTime);
  const words = cell.textContent.trim();
  const figure = Number(words.replaceAll(",", ""));
  return words && !Number.isNaN(figure) ? figure : words;
}

function addSelectAll(head) {
  if (head.querySelector("input")) return;
  const box = document.createElement("input");
  box.type = "checkbox";
  box.dataset.selectAll = "";
  box.setAttribute("aria-label", "Select all that are shown");
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
  words.textContent = count ? `${count} selected:` : words.dataset.selected;
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
  const [age, fresh] = [document.querySelector(".age"), page.querySelector(".age")];
  if (age && fresh) {
    age.replaceWith(document.adoptNode(fresh));
    showTimes(document.querySelector(".age"));
  }
  countSelected();
}
