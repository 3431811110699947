"""Every text that a person reads is in the catalogue: in a language where each message has brackets, no text
has none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from deploy.words import CATALOGUE, messages, translations, written
from fencepost.embedded import Database
from fencepost_server.console._role import Role
from fencepost_server.console._settings import ConsoleSettings
from tests.integration.console.env import ConsoleEnv, console
from tests.integration.console.populated_system import PopulatedSystem, leave_a_report
from tests.integration.console.test_walk import walk

LANGUAGE = "zz"
_MARKED = re.compile(r"⟦[^⟦⟧]*⟧")
_WORD = re.compile(r"[^\W\d_]{2,}")
_NO_PROSE = {"code", "pre", "time", "script", "style", "kbd", "datalist"}
_INLINE = {"time", "code", "b", "span", "a", "progress", "kbd", "em", "small"}
"""Elements that stand inside a sentence."""
_SHOWN = ("aria-label", "title", "placeholder", "alt", "data-selected")
UNITS = {"ms", "min", "µs", "KiB", "UTC", "JSON", "CSV", "Fencepost", "Ctrl", "p95", "Menu"}


class Texts(HTMLParser):
    """The texts of a page that a person reads, and the attributes that are read or shown."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = [""]
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _NO_PROSE:
            self._inside.append(tag)
        if tag not in _INLINE:
            self.found.append("")
        shown = [
            value for name, value in attrs if name in _SHOWN and value and tag != "time" and value[0] != "{"
        ]
        self.found[:0] = shown

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()
        if tag not in _INLINE:
            self.found.append("")

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.found[-1] += data


@pytest.fixture
def env(database: Database, tmp_path: Path) -> Iterator[ConsoleEnv]:
    leave_a_report(tmp_path)
    folder = tmp_path / "words"
    folder.mkdir()
    told = {message: f"⟦{message}⟧" for message in json.loads(CATALOGUE.read_text("utf-8"))}
    (folder / f"{LANGUAGE}.json").write_text(json.dumps(told), "utf-8")
    settings = ConsoleSettings(look_seconds=0.2, language=LANGUAGE, words=folder)
    with console(database, settings, data_directory=tmp_path) as env:
        yield env


def bare(text: str, known: str) -> list[str]:
    """The words of a page that no message has and that are no data of its."""
    texts = Texts()
    texts.feed(text)
    left: list[str] = []
    for found in texts.found:
        rest, before = found, ""
        while rest != before:
            before, rest = rest, _MARKED.sub(" ", rest)
        words = _WORD.findall(rest)
        left += [
            f"{word} (in {found.strip()[:80]!r})"
            for word in words
            if word not in UNITS and word.lower() not in known
        ]
    return left


def test_no_text_of_any_page_is_outside_the_catalogue(env: ConsoleEnv) -> None:
    PopulatedSystem(env.database)
    env.context.live_snapshot.forget()
    outside: dict[str, list[str]] = {}
    with env.visitor(Role.ADMIN) as client:
        for route, address, page in walk(env, client):
            below = address.removeprefix("/console").partition("#")[0]
            facts = client.get(f"/api{below if below.startswith('/') else f'/overview{below}'}")
            known = f"{facts.text} {address} admin".lower()
            if left := bare(page.text, known):
                outside[route] = sorted(set(outside.get(route, []) + left))
    assert not outside, json.dumps(outside, indent=1, ensure_ascii=False)


def test_the_catalogue_has_exactly_the_messages_that_there_are() -> None:
    assert CATALOGUE.read_text("utf-8") == written(messages()), "run `make references`"


def test_a_translation_has_no_message_that_no_page_shows() -> None:
    known = messages().keys()
    stale = {path.name: sorted(json.loads(path.read_text("utf-8")).keys() - known) for path in translations()}
    assert stale == {"de.json": []}


def test_a_visitor_reads_the_language_that_his_browser_asks_for(database: Database) -> None:
    with console(database) as env, env.visitor(Role.VIEWER) as client:

        def title(accepted: str) -> tuple[str, str]:
            text = client.get("/console/queues", headers={"accept-language": accepted}).text
            language, heading = re.search(r'<html lang="(\w+)"', text), re.search(r"<h1>(.*?)</h1>", text)
            assert language is not None
            assert heading is not None
            return language[1], heading[1]

        assert title("de-AT,de;q=0.9,en;q=0.5") == ("de", "Warteschlangen")
        assert title("fr, en;q=0.5, de;q=0.1") == ("en", "Queues")
        assert title("xx") == title("") == ("en", "Queues")
        german = client.get("/console/refusals", headers={"accept-language": "de"}).text
        assert "0 verspätete Schreibzugriffe in 24 Stunden abgewiesen" in german
        assert client.get("/api/queues", headers={"accept-language": "de"}).status_code == 200


def test_what_a_translation_lacks_is_shown_in_english(database: Database, tmp_path: Path) -> None:
    (tmp_path / "xx.json").write_text('{"Queues": "QUEUES"}', "utf-8")
    settings = ConsoleSettings(language="xx", words=tmp_path)
    with console(database, settings) as env, env.visitor(Role.VIEWER) as client:
        page = client.get("/console/queues").text
    assert "<h1>QUEUES</h1>" in page
    assert "No queue was used lately." in page
