// What a page gains with scripts; each works without. Times in the viewer's zone, questions before what cannot be
// undone, charts that answer the keyboard, and figures that move.
import { askFirst } from "./questions.js";
import { showTimes } from "./times.js";
import { readCharts } from "./charts.js";
import { watch } from "./live.js";
import { followFlow } from "./flow.js";
import { refresh } from "./refresh.js";

showTimes(document);
readCharts(document);
askFirst(document);
watch();
followFlow(document);
refresh(document);
