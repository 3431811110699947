"""The words of the pages: every text that a person reads goes through one catalogue; a translation is a file.

A message is its English text, with names in braces for what is put into it. `say` answers it in the
language of the request. In a template a text needs no mark: the text between two tags is a message, with
expressions as `{0}`, `{1}`, and so are the texts of the attributes that are read or shown. A string inside
an expression goes through `say` in the macro that shows it. Scripts have a `say` of their own, over the
part of the catalogue that stands in the page.

A translation is `words/LANGUAGE.json`, an object from message to translation; what it lacks is English.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any, cast

from jinja2.ext import Extension
from markupsafe import Markup, escape

from fencepost.errors import SettingsError

ENGLISH = "en"
HERE = Path(__file__).parent / "words"
SHOWN_ATTRIBUTES = ("aria-label", "title", "placeholder", "alt", "data-selected")
_CODE = ("code", "pre", "script", "style", "kbd")
"""Elements whose text is no prose."""
_EXPRESSION = r"\{\{.*?\}\}"
_BLOCK = r"\{%.*?%\}|\{#.*?#\}"
_TAG = rf"<(?:!--.*?--|/?[a-zA-Z!](?:{_EXPRESSION}|{_BLOCK}|[^<>{{]|\{{(?![{{%#]))*)>"
_TOKEN = re.compile(
    rf"(?P<block>{_BLOCK})|(?P<tag>{_TAG})|(?P<expression>{_EXPRESSION})|(?P<text>[^<{{]+|.)", re.DOTALL
)
_ATTRIBUTE = re.compile(
    rf'(?<=\s)({"|".join(SHOWN_ATTRIBUTES)})="((?:{_EXPRESSION}|{_BLOCK}|[^"{{]|\{{)*)"', re.DOTALL
)
_SCRIPT_MESSAGE = re.compile(r'\bsay\(\s*"((?:[^"\\]|\\.)*)"')
_PLACE = re.compile(r"\{(\w+)\}")
_LETTER = re.compile(r"[^\W\d_]")
_LANGUAGE_FILE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})?")


@dataclass(frozen=True, slots=True)
class Words:
    """One language."""

    language: str = ENGLISH
    messages: Mapping[str, str] = field(default_factory=dict[str, str])

    def of(self, message: str) -> str:
        """The translation of a message, or the message."""
        return self.messages.get(message, message)


_words: ContextVar[Words | None] = ContextVar("fencepost_words", default=None)
_NONE = Words()


def use(words: Words) -> None:
    """Answer in this language until the request ends."""
    _words.set(words)


def words_in_use() -> Words:
    """The language of the request."""
    return _words.get() or _NONE


def filled(message: str, values: Mapping[str, Any]) -> str:
    """A text with its places filled in; what has no value stays."""
    return _PLACE.sub(lambda place: str(values.get(place[1], place[0])), message)


def say(message: str, /, *places: object, **named: object) -> str:
    """A message in the language of the request, with its places filled in.

    With HTML among what is put into it, as templates have it, it is HTML: everything else is escaped.
    """
    if isinstance(message, Markup):
        return message
    told = words_in_use().of(message)
    if not places and not named:
        return told
    values = {**{str(index): value for index, value in enumerate(places)}, **named}
    if not any(isinstance(value, Markup) for value in values.values()):
        return filled(told, values)
    shown = [
        escape(part) if index % 2 == 0 else escape(values.get(part, "{" + part + "}"))
        for index, part in enumerate(_PLACE.split(told))
    ]
    return Markup("").join(shown)


def shown_word(message: Any, /, *places: object, **named: object) -> Any:
    """`say` for templates: what is no text stays as it is."""
    return say(message, *places, **named) if isinstance(message, str) else message


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The languages that there are, and which of them a request gets."""

    chosen: str = "auto"
    """A language, or `auto`: the first one of Accept-Language that there is."""
    languages: Mapping[str, Words] = field(default_factory=dict[str, Words])

    def words_for(self, accepted: str) -> Words:
        """The language for a request with this Accept-Language."""
        if self.chosen != "auto":
            return self.languages.get(self.chosen, _NONE)
        for language in _preferred(accepted):
            if language == ENGLISH:
                return _NONE
            if language in self.languages:
                return self.languages[language]
        return _NONE


def load_catalogue(chosen: str = "auto", more: Path | None = None) -> Catalogue:
    """The translations of this package, and those of a folder, which add to them and win."""
    languages: dict[str, dict[str, str]] = {}
    for folder in (HERE, *([more] if more is not None else [])):
        if not folder.is_dir():
            raise SettingsError(f"{folder} is no folder of translations.")
        for path in sorted(folder.glob("*.json")):
            if path.stem != ENGLISH:
                languages.setdefault(path.stem, {}).update(_read(path))
    known = (ENGLISH, "auto", *languages)
    if chosen not in known:
        raise SettingsError(f"There is no language {chosen!r}. Available: {', '.join(known)}.")
    return Catalogue(chosen, {name: Words(name, messages) for name, messages in languages.items()})


def _read(path: Path) -> Mapping[str, str]:
    try:
        messages = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} is no translation: {error}") from None
    if not _LANGUAGE_FILE.fullmatch(path.stem):
        raise SettingsError(f"{path.name} names no language; call it de.json, for example.")
    told = cast("dict[str, str]", messages) if isinstance(messages, dict) else None
    if told is None or not all(type(one) is str for one in told.values()):
        raise SettingsError(f"{path} must be an object from message to translation.")
    for message, translation in told.items():
        if set(_PLACE.findall(message)) != set(_PLACE.findall(translation)):
            raise SettingsError(f"{path}: the translation of {message!r} must have the same names in braces.")
    return told


def _preferred(accepted: str) -> Sequence[str]:
    """The languages of an Accept-Language, the most wanted first; `de-AT` is also `de`."""
    wanted: list[tuple[float, str]] = []
    for part in accepted.split(",")[:20]:
        language, _, weight = part.strip().partition(";")
        try:
            wanted.append((float(weight.strip().removeprefix("q=") or 1), language.strip().lower()))
        except ValueError:
            continue
    ordered = [language for weight, language in sorted(wanted, key=lambda one: -one[0]) if weight > 0]
    return [name for language in ordered for name in dict.fromkeys((language, language.partition("-")[0]))]


class TemplateWords(Extension):
    """Makes a message of each text of a template."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        """The template with its texts in calls of `say`."""
        return "".join(_rewritten(source, lambda message: None))


def template_messages(source: str) -> Sequence[str]:
    """The messages that the texts of a template are."""
    found: list[str] = []
    for _ in _rewritten(source, found.append):
        pass
    return found


def script_messages(source: str) -> Sequence[str]:
    """The messages of a script: the texts in its calls of `say`."""
    return [json.loads(f'"{one}"') for one in _SCRIPT_MESSAGE.findall(source)]


def _rewritten(source: str, tell: Callable[[str], object]) -> Iterator[str]:
    """The pieces of a template; each run of text and expressions between tags and blocks is one message."""
    run: list[tuple[str, str]] = []
    code = 0
    for token in _TOKEN.finditer(source):
        kind, text = token.lastgroup or "text", token[0]
        if kind in ("text", "expression") and not code:
            run.append((kind, text))
            continue
        yield _message(run, tell)
        run = []
        if kind == "tag":
            name = re.match(r"</?(\w*)", text)
            if name is not None and name[1].lower() in _CODE and not text.endswith("/>"):
                code += -1 if text.startswith("</") else 1
            yield _ATTRIBUTE.sub(lambda found: f'{found[1]}="{_attribute(found[2], tell)}"', text)
        else:
            yield text
    yield _message(run, tell)


def _attribute(value: str, tell: Callable[[str], object]) -> str:
    tokens = [(token.lastgroup or "text", token[0]) for token in _TOKEN.finditer(value)]
    if any(kind in ("block", "tag") for kind, _ in tokens):
        return value
    return _message(tokens, tell)


def _message(run: Sequence[tuple[str, str]], tell: Callable[[str], object]) -> str:
    """A run as a call of `say`, or as it is when it has no words."""
    whole = "".join(text for _, text in run)
    if not any(kind == "text" and _LETTER.search(_without_entities(text)) for kind, text in run):
        return whole
    # What stands before and behind the words is no part of the message.
    first = next(index for index, (kind, text) in enumerate(run) if kind == "expression" or text.strip())
    last = max(index for index, (kind, text) in enumerate(run) if kind == "expression" or text.strip())
    parts: list[str] = []
    expressions: list[str] = []
    for kind, text in run[first : last + 1]:
        if kind == "expression":
            parts.append("{" + str(len(expressions)) + "}")
            expressions.append(text[2:-2].strip().removeprefix("-").removesuffix("-").strip())
        else:
            parts.append(text)
    told = "".join(parts)
    message = " ".join(unescape(told).split())
    tell(message)
    before = "".join(text for _, text in run[:first]) + told[: len(told) - len(told.lstrip())]
    after = told[len(told.rstrip()) :] + "".join(text for _, text in run[last + 1 :])
    call = ", ".join((json.dumps(message, ensure_ascii=False), *(f"({one})" for one in expressions)))
    return f"{before}{{{{ say({call}) }}}}{after}"


def _without_entities(text: str) -> str:
    return re.sub(r"&\w+;", "", text)


def script_words(words: Words, messages: Collection[str]) -> str:
    """The translations of the messages of scripts, as JSON that may stand in a page."""
    told = {one: words.messages[one] for one in sorted(messages) if one in words.messages}
    # Nothing in it ends the element that it stands in.
    return json.dumps(told, ensure_ascii=False).replace("<", "\\u003c")
