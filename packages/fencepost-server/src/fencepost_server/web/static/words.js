// The words of scripts, in the language of the page: its catalogue stands in the page, and lacks what is English.
const place = document.getElementById("words");
const messages = place ? JSON.parse(place.textContent) : {};
export const language = document.documentElement.lang || "en";

export function say(message, values = {}) {
  return (messages[message] ?? message).replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);
}
