// What a page gains with scripts; each works without. Times in the viewer's zone, questions as dialogs, lists that are
// read again, charts that answer the keyboard, figures that move, and a palette of commands.
import { askFirst } from "./questions.js";
import { keepTimes, showTimes } from "./times.js";
import { readCharts } from "./charts.js";
import { watch } from "./live.js";
import { followFlow } from "./flow.js";
import { refresh } from "./refresh.js";
import { improveLists, keepLists } from "./lists.js";
import { listen } from "./palette.js";

document.documentElement.classList.add("scripted");
showTimes(document);
keepTimes();
improveLists(document);
keepLists();
listen();
for (const theme of document.querySelectorAll(".themes select")) theme.addEventListener("change", () => theme.form.requestSubmit());
readCharts(document);
askFirst(document);
watch();
followFlow(document);
refresh(document);
