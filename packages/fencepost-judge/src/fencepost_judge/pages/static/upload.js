// A file is sent with a bar that says how much of it has arrived. Without scripts the browser sends the form itself.
export function showProgress(form) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const [buttons, bar, said] = [form.querySelectorAll("button"), document.createElement("progress"), document.createElement("p")];
    bar.setAttribute("aria-label", "Sent");
    said.setAttribute("role", "status");
    form.append(bar, said);
    for (const button of buttons) button.disabled = true;
    const request = new XMLHttpRequest();
    request.upload.addEventListener("progress", ({ loaded, total }) => {
      bar.max = total;
      bar.value = loaded;
      said.textContent = `${mebibytes(loaded)} of ${mebibytes(total)} MiB`;
    });
    request.upload.addEventListener("load", () => {
      bar.removeAttribute("value");
      said.textContent = "Everything has arrived. The package is being read.";
    });
    request.addEventListener("load", () => finish(request));
    request.addEventListener("error", () => {
      said.textContent = "The connection was lost. Send it again: the same content is the same version.";
      bar.remove();
      for (const button of buttons) button.disabled = false;
    });
    request.open("POST", event.submitter?.formAction ?? form.action);
    request.send(new FormData(form));
  });
}

// The page that answers: after a success another one, after a refusal this one with its reason.
function finish(request) {
  if (request.status < 400) {
    window.location.assign(request.responseURL);
    return;
  }
  const page = new DOMParser().parseFromString(request.responseText, "text/html");
  document.querySelector("main").replaceChildren(...page.querySelector("main").childNodes);
}

function mebibytes(bytes) {
  return (bytes / 1048576).toFixed(1);
}
