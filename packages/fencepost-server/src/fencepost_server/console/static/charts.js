// The pointer, or the arrow keys, read a chart out. The figures stand in the table below the charts; nothing is computed twice.
import { say } from "./words.js";

const WIDTH = 640;

export function readCharts(root) {
  for (const chart of root.querySelectorAll("figure.chart")) readOut(chart);
}

function readOut(chart) {
  const rows = [...(document.getElementById("figures")?.tBodies[0].rows ?? [])];
  const first = Number(chart.dataset.first);
  const names = [...chart.querySelectorAll(".legend span")].map((one) => one.textContent);
  const svg = chart.querySelector(".plot > svg");
  const readout = chart.querySelector(".readout");
  if (!svg || !rows.length) return;
  let at = rows.length - 1;

  function show(index) {
    at = Math.max(0, Math.min(rows.length - 1, index));
    const cells = [...rows[at].cells];
    const figures = names.map((name, column) => `${name} ${cells[first + column].textContent || say("none")}`);
    readout.textContent = `${cells[0].textContent}: ${figures.join(", ")}`;
    const x = (WIDTH * at) / Math.max(1, rows.length - 1);
    const cursor = svg.querySelector(".cursor");
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
  }

  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    show(Math.round(((event.clientX - box.left) / box.width) * (rows.length - 1)));
  });
  chart.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || event.target !== chart) return;
    event.preventDefault();
    show(at + step);
  });
}
