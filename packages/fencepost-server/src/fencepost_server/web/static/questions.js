// A form that decides something is answered with a question, which names the object and the consequences. Without scripts it
// is a page of its own; with them the same page is shown as a dialog. Nothing in it is preselected: Enter closes it.
import { say } from "./words.js";

export function askFirst(root) {
  for (const form of root.querySelectorAll("form[data-question]")) form.addEventListener("submit", ask);
}

async function ask(event) {
  event.preventDefault();
  const form = event.currentTarget;
  const button = event.submitter;
  const action = button?.hasAttribute("formaction") ? button.formAction : form.action;
  const body = new URLSearchParams(new FormData(form, button));
  const answer = await fetch(action, { method: "POST", body, headers: { Accept: "text/html" } }).catch(() => null);
  if (!answer) return show(say("No answer"), [words("p", say("The server does not answer. Nothing was changed."))], button);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const question = page.getElementById("question") ?? page.querySelector(".error-message");
  // What was done without a question, a new secret for one, is where the answer leads.
  if (!question) return window.location.assign(answer.url);
  show(page.querySelector("h1").textContent, [document.adoptNode(question)], button);
}

function show(title, parts, button) {
  const dialog = document.createElement("dialog");
  const heading = words("h2", title);
  heading.id = "question-title";
  dialog.setAttribute("aria-labelledby", heading.id);
  dialog.append(heading, ...parts);
  let close = dialog.querySelector("[data-close]");
  if (!close) {
    close = words("button", say("Close"));
    dialog.append(close);
  }
  close.addEventListener("click", (event) => {
    event.preventDefault();
    dialog.close();
  });
  dialog.addEventListener("close", () => {
    dialog.remove();
    button?.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  close.focus();
}

function words(tag, text) {
  const element = document.createElement(tag);
  element.textContent = text;
  return element;
}
