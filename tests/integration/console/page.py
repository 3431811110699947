"""A page as a reader without eyes sees it: its links, its tables, its times, and whatever could run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"}
)
# A document, a code and a title may hold an instant as a person wrote it.
LITERAL = frozenset({"pre", "code", "time", "title"})

LISTS = [
    "overview",
    "queues",
    "workers",
    "jobs",
    "batches",
    "workflows",
    "workflows/preview",
    "dead",
    "dead/preview",
    "schedules",
    "leases",
    "outbox",
    "webhooks",
    "orders",
    "players",
    "nonces",
    "flows",
    "checkpoints",
    "refusals",
    "reports",
    "users",
    "account",
    "audit",
]
"""The pages that need no thing to be about."""


@dataclass
class Table:
    """A table by the name of its facts; the rows of its body, without one that says that there are none."""

    name: str | None
    rows: int = 0


@dataclass
class Page(HTMLParser):
    text: str
    links: list[str] = field(default_factory=list[str])
    tables: list[Table] = field(default_factory=list[Table])
    times: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    runs: list[str] = field(default_factory=list[str])
    """Whatever a browser could run: scripts, handlers, and addresses that are programs."""
    bare_instants: list[str] = field(default_factory=list[str])
    words: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[str] = []
        self._region: list[str | None] = []
        self.feed(self.text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._look_for_programs(tag, given)
        if tag == "a":
            self.links.append(given.get("href", ""))
        if tag == "div":
            self._region.append(given.get("data-table"))
        if tag == "table":
            self.tables.append(Table(self._region[-1] if self._region else None))
        if tag == "tr" and "tbody" in self._open:
            self.tables[-1].rows += 1
        if tag == "td" and given.get("class") == "none" and "colspan" in given:
            self.tables[-1].rows -= 1
        if tag == "time":
            self.times.append((given.get("datetime", ""), given.get("title", "")))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "div" and self._region:
            self._region.pop()
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if not LITERAL.intersection(self._open):
            self.bare_instants += INSTANT.findall(data)

    def _look_for_programs(self, tag: str, given: dict[str, str]) -> None:
        if tag in {"script", "iframe", "object", "embed"} and "nonce" not in given:
            self.runs.append(tag)
        self.runs += [f"{tag} {name}" for name in given if name.startswith("on")]
        for name in ("href", "src", "action", "formaction", "data-flow"):
            if name in given and not given[name].startswith(("/", "#", "?")):
                self.runs.append(f"{tag} {name}={given[name]}")
