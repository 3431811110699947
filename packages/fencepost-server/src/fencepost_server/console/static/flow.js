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
    const place = picture.querySelector(`[data-edge="${CSS.escape(edge)}"]`);
    if (place) place.textContent = words;
  }
}
