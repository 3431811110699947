// What a page gains with scripts; each works without. An editor that indents and colours, a verdict that arrives by
// itself, lists that renew themselves, times in the viewer's zone, and questions before what cannot be undone.
import { askFirst } from "./questions.js";
import { keepTimes, showTimes } from "./times.js";
import { colour } from "./colours.js";
import { openSubmitForm } from "./submit_form.js";
import { colourBalloons, countDown, followNews } from "./contest.js";
import { offerCopy } from "./copy.js";
import { showProgress } from "./upload.js";
import { follow } from "./verdict.js";
import { renew } from "./renewal.js";

showTimes(document);
keepTimes();
askFirst(document);
for (const form of document.querySelectorAll("form[data-submit-form]")) openSubmitForm(form);
for (const form of document.querySelectorAll("form[data-upload]")) showProgress(form);
for (const source of document.querySelectorAll("pre.source[data-language]")) {
  colour(source, source.textContent, source.dataset.language);
}
for (const source of document.querySelectorAll("pre[data-copy]")) offerCopy(source);
colourBalloons(document);
for (const place of document.querySelectorAll("[data-until]")) countDown(place);
for (const section of document.querySelectorAll("[data-news]")) followNews(section);
for (const section of document.querySelectorAll("[data-follow]")) follow(section);
for (const section of document.querySelectorAll("[data-again]")) renew(section);
