// What flows over the edges of a graph, asked for again while the page is in sight.
const PERIOD_MS = 2000;

export function followFlow(root) {
  const picture = root.querySelector("[data-flow]");
  if (picture) setTimeout(() => ask(picture), PERIOD_MS);
}

async function ask(picture) {
  try {
    if (!document.hidden) show(picture, await (await fetch(picture.dataset.flow)).json());
  } catch {
    // The server does not answer: the old figures stay, and the next interval tries again.
  }
  setTimeout(() => ask(picture), PERIOD_MS);
}

function show(picture, flow) {
  for (const { edge, words } of flow.edges ?? []) {
    for (const place of picture.querySelectorAll(`[data-edge="${CSS.escape(edge)}"]`)) write(place, words.split(" · "));
  }
}

// The lines stand as flow.html has them: beside an arrow that goes down; above and below one that goes to the right.
function write(place, lines) {
  const [x, y] = [place.getAttribute("x"), Number(place.getAttribute("y"))];
  const isDown = place.classList.contains("down");
  place.replaceChildren(
    ...lines.map((line, index) => {
      const part = document.createElementNS(place.namespaceURI, "tspan");
      part.textContent = line;
      part.setAttribute("x", x);
      part.setAttribute("y", y + (isDown ? 4 + 12 * index - 6 * (lines.length - 1) : index && 8 + 12 * index));
      return part;
    }),
  );
}
