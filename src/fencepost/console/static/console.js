// What a page gains with scripts; each works without. Times in the viewer's zone, questions before what cannot be
// undone, charts that answer the keyboard, and figures that move.
import { showTimes } from "./times.js";
import { readCharts } from "./charts.js";
import { watch } from "./live.js";
import { followFlow } from "./flow.js";

showTimes(document);
readCharts(document);
askFirst(document);
watch();
followFlow(document);

function askFirst(root) {
  for (const form of root.querySelectorAll("form[data-confirm]")) {
    form.addEventListener("submit", (event) => {
      if (!window.confirm(form.dataset.confirm)) event.preventDefault();
    });
  }
}
