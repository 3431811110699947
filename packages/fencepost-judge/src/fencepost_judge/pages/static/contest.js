// A contest's pages: the time that is left, and what is new as a badge and as toasts. The sound is off until the reader turns it on.
const LOOK_MS = 15_000;
const SOON_SECONDS = 300;
const SOUND = "fencepost-news-sound";

// The colour of a balloon beside its name: a page has no styles of its own.
export function colourBalloons(root) {
  for (const place of root.querySelectorAll("[data-rgb]")) place.style.color = place.dataset.rgb;
}

export function countDown(place) {
  // By the server's clock: the difference to this machine's is fixed when the page comes.
  const ahead = Date.parse(place.dataset.now) - Date.now();
  const until = Date.parse(place.dataset.until);
  const shown = place.querySelector("span");
  shown.hidden = false;
  const tick = () => {
    const left = Math.max(0, Math.floor((until - Date.now() - ahead) / 1000));
    const part = (size, within) => String(Math.floor(left / size) % within).padStart(2, "0");
    shown.textContent = left ? `${Math.floor(left / 3600)}:${part(60, 60)}:${part(1, 60)} left` : "over";
    place.classList.toggle("soon", left < SOON_SECONDS);
    if (left) setTimeout(tick, 1000);
  };
  tick();
}

export function followNews(section) {
  const sound = section.querySelector("[data-sound]");
  sound.closest("label").hidden = false;
  sound.checked = localStorage.getItem(SOUND) === "on";
  sound.addEventListener("change", () => localStorage.setItem(SOUND, sound.checked ? "on" : "off"));
  const told = new Set();
  let first = true;
  const look = async () => {
    try {
      const answer = await fetch(section.dataset.news, { headers: { Accept: "application/json" } });
      if (answer.ok && !answer.redirected) {
        const unread = await answer.json();
        badge(unread.length);
        const fresh = unread.filter((one) => !told.has(key(one)));
        for (const one of unread) told.add(key(one));
        // What was unread when the page came is in the badge.
        if (!first && fresh.length) {
          for (const one of fresh) toast(section, one);
          if (sound.checked) beep();
        }
        first = false;
      }
    } catch {
      // The server does not answer: the next look tries again.
    }
    setTimeout(look, LOOK_MS);
  };
  look();
}

function key(one) {
  return `${one.clarification_id}-${one.answer === null ? "question" : "answer"}`;
}

function badge(count) {
  for (const place of document.querySelectorAll("[data-badge]")) {
    place.hidden = count === 0;
    place.firstChild.data = String(count);
  }
}

function toast(section, one) {
  const made = document.createElement("div");
  made.className = "toast";
  const close = document.createElement("button");
  close.type = "button";
  close.textContent = "Close";
  close.addEventListener("click", () => made.remove());
  const link = document.createElement("a");
  link.href = section.dataset.page;
  link.textContent = section.dataset.jury ? "A question" : one.question ? "An answer" : "An announcement";
  const words = document.createElement("p");
  words.textContent = `${one.label ? `${one.label}: ` : ""}${(one.answer ?? one.question).slice(0, 200)}`;
  made.append(close, link, words);
  section.querySelector("[data-toasts]").append(made);
}

function beep() {
  const context = new AudioContext();
  const tone = context.createOscillator();
  const volume = context.createGain();
  volume.gain.value = 0.1;
  tone.connect(volume).connect(context.destination);
  tone.start();
  tone.stop(context.currentTime + 0.15);
  tone.addEventListener("ended", () => context.close());
}
