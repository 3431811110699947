// Instants come as UTC; people read them in their own zone. The exact instant stays in the title.
const form = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export function showTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const instant = new Date(time.dateTime);
    if (!Number.isNaN(instant.valueOf())) time.textContent = form.format(instant);
  }
  const zone = document.getElementById("zone");
  if (zone) zone.textContent = form.resolvedOptions().timeZone;
}

export function duration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toPrecision(3)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.round((seconds % 86400) / 3600)} h`;
}
