// A custom run beside the statement: the same form and the same page as without scripts, of which only the outcome is shown.
const LOOK_MS = 400;

export async function tryOut(event, form) {
  event.preventDefault();
  if (!form.reportValidity()) return;
  const place = form.querySelector("[data-outcome]");
  const button = event.currentTarget;
  button.disabled = true;
  place.textContent = "Running…";
  try {
    const body = new URLSearchParams(new FormData(form));
    await show(place, await fetch(button.formAction, { method: "POST", body }));
  } catch {
    place.textContent = "The judge did not answer. Try again.";
  }
  button.disabled = false;
}

async function show(place, answer) {
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const told = page.querySelector("#outcome, .error-message");
  if (!told) throw new Error("another page");
  const again = told.dataset.again !== undefined;
  told.removeAttribute("id");
  place.replaceChildren(document.adoptNode(told));
  if (!again) return;
  await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  await show(place, await fetch(answer.url));
}
