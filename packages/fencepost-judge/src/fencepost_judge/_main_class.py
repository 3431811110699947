"""Finds the main class of a JVM program in the compiler's output, not by its name."""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

CLASSES_MAX = 5000
CLASS_BYTES_MAX = 1 << 20
MAGIC = 0xCAFEBABE
PUBLIC_STATIC = 0x0009
PRIVATE = 0x0002
MAIN_OF_ARRAY, MAIN_OF_NOTHING = "([Ljava/lang/String;)V", "()V"
SIMPLE_MAIN_MAJOR = 69
"""From Java 25 on, any main method that is not private is accepted."""
RUNTIMES = ("kotlin/", "kotlinx/", "org/jetbrains/", "META-INF/")
_CONSTANT_BYTES = {
    **dict.fromkeys((7, 8, 16, 19, 20), 2),
    15: 3,
    **dict.fromkeys((3, 4, 9, 10, 11, 12, 17, 18), 4),
    **dict.fromkeys((5, 6), 8),
}
"""The bytes that follow the tag of each kind of constant, except texts."""
_TWO_PLACES = (5, 6)
_UTF8 = 1
# A text block, a string, a character, and both kinds of comments.
_OPAQUE = re.compile(
    r'"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"|' + r"'(?:\\.|[^'\\\n])*'|//[^\n]*|/\*.*?\*/", re.DOTALL
)
_PUBLIC_TYPE = re.compile(
    r"\bpublic\s+(?:(?:final|abstract|strictfp|sealed|non-sealed)\s+)*(?:class|@?interface|enum|record)\s+"
    r"([A-Za-z_$][\w$]*)"
)


@dataclass(frozen=True, slots=True)
class _Found:
    name: str
    is_usual: bool
    """public static void main(String[])."""


def class_in_folder(folder: Path, wanted: str) -> str | None:
    """The class with a main method; `wanted`, the name of the first file, when several have one."""
    paths = sorted(folder.rglob("*.class"))[:CLASSES_MAX]
    return _chosen((path.read_bytes() for path in paths if path.stat().st_size <= CLASS_BYTES_MAX), wanted)


def class_in_jar(jar: Path, wanted: str) -> str | None:
    """The class in the manifest, or the class with a main method; never one of the language's own."""
    try:
        with zipfile.ZipFile(jar) as opened:
            return _said(opened) or _chosen(_classes(opened), wanted)
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError):
        return None


def named_for_compiler(sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Java files named after their public classes: the compiler requires it, and authors forget it."""
    named: dict[str, bytes] = {}
    for name, content in sources.items():
        public = _public_type(content) if name.endswith(".java") else None
        target = f"{public}.java" if public else name
        free = target not in sources and target not in named
        named[target if free else name] = content
    return named


def _said(opened: zipfile.ZipFile) -> str | None:
    try:
        manifest = opened.read("META-INF/MANIFEST.MF")[:CLASS_BYTES_MAX].decode("utf-8", "replace")
    except KeyError:
        return None
    found = re.search(r"^Main-Class:\s*([\w$.]+)\s*$", manifest, re.MULTILINE)
    return found[1] if found else None


def _classes(opened: zipfile.ZipFile) -> Iterator[bytes]:
    own = [
        one
        for one in opened.infolist()
        if one.filename.endswith(".class") and not one.filename.startswith(RUNTIMES)
    ]
    for one in own[:CLASSES_MAX]:
        if one.file_size <= CLASS_BYTES_MAX:
            with opened.open(one) as file:
                yield file.read(CLASS_BYTES_MAX)


def _chosen(classes: Iterable[bytes], wanted: str) -> str | None:
    found = [one for content in classes if (one := _read(content)) is not None]
    preferred = (wanted, f"{wanted[:1].upper()}{wanted[1:]}Kt", "Main", "MainKt")

    def rank(one: _Found) -> tuple[bool, int, str]:
        simple = one.name.rpartition(".")[2]
        place = preferred.index(simple) if simple in preferred else len(preferred)
        return not one.is_usual, place, one.name

    return min(found, key=rank).name if found else None


def _read(content: bytes) -> _Found | None:
    """A class with a main method. None for what is not a class file: the content comes from an untrusted
    source."""
    try:
        return _Class(content).found()
    except (struct.error, IndexError, KeyError, UnicodeDecodeError):
        return None


class _Class:
    """One class file, read from its start up to its methods."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def found(self) -> _Found | None:
        magic, _, major, count = self._take(">IHHH")
        if magic != MAGIC:
            return None
        texts, classes = self._constants(count)
        _, own, _, interfaces = self._take(">HHHH")
        self._at += 2 * interfaces
        for _ in self._members():
            pass
        methods = [(access, texts[name], texts[kind]) for access, name, kind in self._members()]
        mains = [(access, kind) for access, name, kind in methods if name == "main"]
        usual = any(access & 0xF == PUBLIC_STATIC and kind == MAIN_OF_ARRAY for access, kind in mains)
        simple = major >= SIMPLE_MAIN_MAJOR and any(
            not access & PRIVATE and kind in (MAIN_OF_ARRAY, MAIN_OF_NOTHING) for access, kind in mains
        )
        return _Found(texts[classes[own]].replace("/", "."), usual) if usual or simple else None

    def _take(self, layout: str) -> tuple[int, ...]:
        values: tuple[int, ...] = struct.unpack_from(layout, self._content, self._at)
        self._at += struct.calcsize(layout)
        return values

    def _constants(self, count: int) -> tuple[dict[int, str], dict[int, int]]:
        """Texts by their index, and for classes the index of their name."""
        texts: dict[int, str] = {}
        classes: dict[int, int] = {}
        number = 1
        while number < count:
            (tag,) = self._take(">B")
            if tag == _UTF8:
                (length,) = self._take(">H")
                texts[number] = self._content[self._at : self._at + length].decode("utf-8", "replace")
                self._at += length
            else:
                if tag == 7:
                    (classes[number],) = struct.unpack_from(">H", self._content, self._at)
                self._at += _CONSTANT_BYTES[tag]
            number += 2 if tag in _TWO_PLACES else 1
        return texts, classes

    def _members(self) -> Iterator[tuple[int, int, int]]:
        (count,) = self._take(">H")
        for _ in range(count):
            access, name, kind, attributes = self._take(">HHHH")
            for _ in range(attributes):
                _, length = self._take(">HI")
                self._at += length
            yield access, name, kind


def _public_type(content: bytes) -> str | None:
    """The public class of a file, if it has one, ignoring nested classes, comments and strings."""
    text = _OPAQUE.sub(" ", content.decode("utf-8", "replace"))
    for found in _PUBLIC_TYPE.finditer(text):
        before = text[: found.start()]
        if before.count("{") == before.count("}"):
            return found[1]
    return None
