// A text area that indents like an editor, with its colours drawn behind it. The text area stays the one that is sent,
// read out and searched; without scripts it is all there is.
import { colour } from "./colours.js";
import { tryOut } from "./custom_run.js";

const OPENS = /[{([:]\s*$/;

export function openSubmitForm(form) {
  const area = form.querySelector("textarea[name=code]");
  const shade = form.querySelector(".shade");
  const gutter = form.querySelector(".gutter");
  const language = form.elements.language;
  const draft = `fencepost-draft:${form.elements.problem_id.value}`;
  for (const place of form.querySelectorAll(".with-script")) place.hidden = false;
  shade.hidden = false;
  gutter.hidden = false;
  shade.parentElement.classList.add("coloured");
  if (!area.value) area.value = sessionStorage.getItem(draft) ?? "";

  function paint() {
    // A line more than the text has: the last one can be empty, and the two must scroll alike.
    colour(shade, `${area.value}\n`, language.value);
    const lines = area.value.split("\n").length;
    // A line more, as the colours have: both scroll alike.
    gutter.textContent = Array.from({ length: lines }, (_, place) => place + 1).join("\n") + "\n\n";
    follow();
  }
  function follow() {
    shade.scrollTop = area.scrollTop;
    gutter.scrollTop = area.scrollTop;
    shade.scrollLeft = area.scrollLeft;
  }

  area.addEventListener("input", () => {
    sessionStorage.setItem(draft, area.value);
    paint();
  });
  area.addEventListener("scroll", follow);
  language.addEventListener("change", paint);
  area.addEventListener("keydown", keys(form, area, () => (language.value === "go" ? "\t" : "    ")));
  form.querySelector("[data-open]").addEventListener("change", (event) => open(event.target, area));
  for (const button of form.querySelectorAll("[data-try], [data-samples]")) {
    button.addEventListener("click", (event) => tryOut(event, form));
  }
  paint();
}

async function open(chosen, area) {
  const file = chosen.files[0];
  if (!file) return;
  area.focus();
  area.select();
  insert(area, (await file.text()).replaceAll("\r\n", "\n"));
}

function keys(form, area, unit) {
  // After Escape the next Tab moves on, so that keyboard users can leave the field.
  let leaves = false;
  return (event) => {
    if (event.isComposing) return;
    const plain = !event.ctrlKey && !event.altKey && !event.metaKey;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.requestSubmit(form.querySelector("button.main") ?? undefined);
    } else if (event.key === "'" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.querySelector("[data-samples]")?.click();
    } else if (event.key === "Tab" && plain && !leaves) {
      event.preventDefault();
      indent(area, unit(), event.shiftKey);
    } else if (event.key === "Enter" && plain && !event.shiftKey) {
      event.preventDefault();
      const line = lineBefore(area);
      insert(area, `\n${/^[ \t]*/.exec(line)[0]}${OPENS.test(line) ? unit() : ""}`);
    } else if (event.key === "}" && plain && /^[ \t]+$/.test(lineBefore(area))) {
      event.preventDefault();
      area.selectionStart -= Math.min(unit().length, lineBefore(area).length);
      insert(area, "}");
    }
    leaves = event.key === "Escape";
  };
}

function lineBefore(area) {
  const before = area.value.slice(0, area.selectionStart);
  return before.slice(before.lastIndexOf("\n") + 1);
}

function indent(area, unit, back) {
  const { selectionStart: from, selectionEnd: to, value } = area;
  if (from === to && !back) {
    insert(area, unit);
    return;
  }
  const start = value.lastIndexOf("\n", from - 1) + 1;
  const lines = value.slice(start, to).split("\n");
  const moved = lines.map((line) => (back ? line.replace(/^(\t| {1,4})/, "") : line && unit + line)).join("\n");
  area.setSelectionRange(start, to);
  insert(area, moved);
  area.setSelectionRange(from === to ? Math.max(start, from + moved.length - (to - start)) : start, start + moved.length);
}

// As if typed: the browser's own way keeps its undo. Where there is none, the text is put in all the same.
function insert(area, text) {
  if (text === "" && area.selectionStart === area.selectionEnd) return;
  const done = text === "" ? document.execCommand("delete") : document.execCommand("insertText", false, text);
  if (done) return;
  area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
  area.dispatchEvent(new Event("input"));
}
