"""The index of each folder of pages, by groups: the page's first words say which group it is in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

GROUPS: Mapping[str, str] = {
    "jobs": "Jobs",
    "workflows": "Workflows",
    "flows": "Flows",
    "outbox": "Outbox and webhooks",
    "webhooks": "Outbox and webhooks",
    "orders": "Orders",
    "nonces": "Nonces",
    "players": "Players and mutations",
    "mutations": "Players and mutations",
    "judge": "Judge",
    "migrate": "Migrate from another library",
}
"""The first word of a file's name, and the heading of its group."""
FOLDERS: Mapping[str, tuple[str, str]] = {
    "how-to": ("How-to", "Directions for one task each."),
    "reference": ("Reference", "Facts to look up."),
    "explanation": ("Explanation", "Why it is made so, what it costs, and what was tried against it."),
    "runbooks": ("Runbooks", "One page for each alert: what it means, what to look at, what to do."),
    "results": (
        "Records",
        "What was found and measured, kept as it was. Results of runs are the JSON files beside these pages.",
    ),
    "decisions": ("Decisions", "Context, decision and consequences of what someone will question later."),
}


def pages(docs: Path) -> dict[str, str]:
    """Index pages of the folders, by their path."""
    return {f"{folder}/README.md": _page(docs / folder, folder) for folder in FOLDERS}


def _page(place: Path, folder: str) -> str:
    titles = {path.name: _title(path.read_text(encoding="utf-8")) for path in place.glob("*.md")}
    titles.pop("README.md", None)
    title, sentence = FOLDERS[folder]
    lines = [f"# {title}", "", sentence]
    groups = _groups(titles)
    for heading, names in groups.items():
        lines += ["", f"## {heading}", "", *(f"- [{titles[name]}]({name})" for name in names)]
    return "\n".join(lines) + "\n"


def _groups(titles: Mapping[str, str]) -> dict[str, list[str]]:
    """What belongs to no part comes first; numbered pages stay in their order."""
    general: dict[str, list[str]] = {"General": []}
    for name in sorted(titles, key=lambda name: name if name[0].isdigit() else titles[name].lower()):
        word = name.removesuffix(".md").partition("-")[0]
        general.setdefault(GROUPS.get(word, "General"), []).append(name)
    order = ["General", *dict.fromkeys(GROUPS.values())]
    return {heading: general[heading] for heading in order if general.get(heading)}


def _title(text: str) -> str:
    return next(line.removeprefix("# ") for line in text.splitlines() if line.startswith("# "))
