"""Rewrites a statement in TeX as Markdown: what problem statements use, formulas as they are.

No TeX runs: a document of another author would run as a program. A command that is not known here is left
out, and the text in its braces stays.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping

TEX_BYTES_MAX = 500_000
DEPTH_MAX = 60
_ESCAPED = re.compile(r"([\\`*_\[\]<>#|])")
_COMMENT = re.compile(r"(?<!\\)%.*?(?:\n[ \t]*|$)")
_TOKEN = re.compile(
    r"\\([A-Za-z]+\*?|.)|(\$\$?)|([{}])|(\n[ \t]*\n\s*)|(~)|(---?|``|'')|([^\\${}~\n`'-]+|.)", re.DOTALL
)
MATH = ("equation", "align", "gather", "eqnarray", "displaymath", "math", "multline", "alignat")
VERBATIM = ("verbatim", "lstlisting", "alltt", "Verbatim")
HEADINGS = {
    "section": "",
    "subsection": "",
    "subsubsection": "",
    "paragraph": "",
    "InputFile": "Input",
    "OutputFile": "Output",
    "Input": "Input",
    "Output": "Output",
    "Note": "Note",
    "Notes": "Note",
    "Scoring": "Scoring",
    "Interaction": "Interaction",
    "Explanation": "Explanation",
    "Constraints": "Constraints",
}
"""Commands that begin a section, with its title; an empty one is in braces."""
STYLES = {
    "textbf": "**", "bf": "**", "textit": "*", "it": "*", "emph": "*", "textsl": "*", "underline": "",
    "texttt": "`", "t": "`", "tt": "`", "code": "`", "verb": "`",
}  # fmt: skip
DECLARED = {"bf": "**", "bfseries": "**", "it": "*", "itshape": "*", "em": "*", "tt": "`", "ttfamily": "`"}
"""Commands that hold up to the end of their group."""
DROPPED = dict.fromkeys(
    [
        "textwidth",
        "caption",
        "footnotesize",
        "contestname",
        "Example",
        "Examples",
        "small",
        "large",
        "Large",
        "noindent",
        "centering",
    ],
    0,
) | {
    **dict.fromkeys(
        [
            "includegraphics",
            "vspace",
            "hspace",
            "label",
            "ref",
            "usepackage",
            "documentclass",
            "end",
            "input",
            "color",
            "problemname",
        ],
        1,
    ),
    **dict.fromkeys(["def", "pagestyle", "thispagestyle", "cite", "cline", "selectlanguage"], 1),
    **dict.fromkeys(
        [
            "exmp",
            "exmpfile",
            "epigraph",
            "setlength",
            "renewcommand",
            "newcommand",
            "createsection",
            "multicolumn",
        ],
        2,
    ),
    **dict.fromkeys(["illustration", "definecolor"], 3),
}
"""Commands that say nothing, with how many of their arguments."""
WORDS = {
    "ldots": "…", "dots": "…", "textbackslash": "\\\\", "quad": " ", "qquad": " ", "LaTeX": "LaTeX",
    "TeX": "TeX", "textasciitilde": "~", "textasciicircum": "^", "par": "\n\n", "newline": "  \n",
    "linebreak": "  \n", "S": "§", "euro": "€", "pounds": "£", "copyright": "©", "ss": "ß", "o": "ø",
    "O": "Ø", "ae": "æ", "AE": "Æ", "aa": "å", "AA": "Å", "l": "ł", "L": "Ł", "i": "i", "j": "j",
    "textgreater": "\\>",
        "textless": "\\<", "textbar": "\\|", "textendash": "\u2013", "textemdash": "—",
    "textquotedbl": '"', "hline": "",
}  # fmt: skip
BACKSLASH = "\\"
_SPACES = {" ": " ", "\n": " ", ",": " ", ";": "", ":": "", "!": "", "/": "", "-": ""}
_ACCENTS = {
    "'": "\u0301",
    "`": "\u0300",
    '"': "\u0308",
    "^": "\u0302",
    "~": "\u0303",
    "=": "\u0304",
    ".": "\u0307",
}


def markdown_of(tex: str) -> str:
    """The statement as Markdown."""
    body = re.search(r"\\begin\{document\}(.*?)\\end\{document\}", tex, re.DOTALL)
    reader = _Reader(_without_comments((body[1] if body else tex).replace("\r\n", "\n")))
    text = unicodedata.normalize("NFC", reader.text())
    # Two blanks at a line's end are a line break.
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _without_comments(tex: str) -> str:
    """A comment takes its line's end with it. What is verbatim has none."""
    parts = re.split(
        r"(\\begin\{(?:verbatim|lstlisting|alltt|Verbatim)\}.*?\\end\{\w+\})", tex, flags=re.DOTALL
    )
    return "".join(part if index % 2 else _COMMENT.sub("", part) for index, part in enumerate(parts))


class _Reader:
    def __init__(self, tex: str) -> None:
        self._tex = tex
        self._at = 0
        self._depth = 0
        self._lists: list[str] = []

    def text(self, until: str = "") -> str:
        """Up to the closing brace of this group, or up to `\\end{until}`."""
        self._depth += 1
        parts: list[str] = []
        closing = ""
        while self._at < len(self._tex) and self._depth < DEPTH_MAX:
            if until and self._tex.startswith(f"\\end{{{until}}}", self._at):
                self._at += len(until) + 6
                break
            found = _TOKEN.match(self._tex, self._at)
            assert found is not None
            self._at = found.end()
            command, dollar, brace, paragraph, tie, dash, words = found.groups()
            if brace == "}":
                if not until:
                    break
            elif brace == "{":
                parts.append(self.text())
            elif command in DECLARED and not self._tex.startswith("{", self._at):
                closing = DECLARED[command] + closing
                self._spaces()
                parts.append("\0" + DECLARED[command])
            elif command is not None:
                parts.append(self._command(command))
            elif dollar:
                parts.append(self._formula(dollar))
            elif paragraph:
                parts.append("\n\n")
            elif tie:
                parts.append(" ")
            elif dash:
                parts.append({"--": "\u2013", "---": "—", "``": "“", "''": "”"}[dash])
            else:
                parts.append(_ESCAPED.sub(r"\\\1", words))
        self._depth -= 1
        return _closed("".join(parts), closing)

    def _formula(self, mark: str) -> str:
        end = self._tex.find(mark, self._at)
        if end < 0:
            return "\\$"
        source, self._at = self._tex[self._at : end], end + len(mark)
        source = " ".join(source.split())
        return f"\n\n$${source}$$\n\n" if mark == "$$" else f"${source}$"

    def _until(self, end: str) -> str:
        place = self._tex.find(end, self._at)
        place = len(self._tex) if place < 0 else place
        taken, self._at = self._tex[self._at : place], min(len(self._tex), place + len(end))
        return taken

    def _argument(self) -> str:
        """The next group, or the next letter."""
        self._optional()
        if self._tex.startswith("{", self._at):
            self._at += 1
            return self.text()
        self._at += 1
        return self._tex[self._at - 1 : self._at]

    def _raw(self) -> str:
        """The next group as it is written."""
        self._optional()
        if not self._tex.startswith("{", self._at):
            return ""
        begin, depth = self._at + 1, 0
        while self._at < len(self._tex):
            letter = self._tex[self._at]
            depth += (letter == "{") - (letter == "}")
            self._at += 2 if letter == "\\" else 1
            if depth == 0:
                break
        return self._tex[begin : self._at - 1]

    def _optional(self) -> str:
        while self._tex.startswith((" ", "\n"), self._at) and self._tex[self._at :].lstrip()[:1] in (
            "{",
            "[",
        ):
            self._at += 1
        if not self._tex.startswith("[", self._at):
            return ""
        self._at += 1
        found = self._until("]")
        if self._tex.startswith((" ", "\n"), self._at) and self._tex[self._at :].lstrip()[:1] == "{":
            self._at += 1
        return found

    def _command(self, name: str) -> str:
        plain = name.rstrip("*")
        own = _OWN.get(plain)
        if own is not None:
            return own(self)
        if plain in HEADINGS:
            title = HEADINGS[plain] or self._argument().strip()
            return f"\n\n## {title}\n\n"
        if plain in STYLES:
            return self._styled(STYLES[plain])
        if plain in WORDS:
            self._spaces()
            return WORDS[plain]
        return self._left_out(plain) if plain in DROPPED else self._letter(name)

    def _left_out(self, name: str) -> str:
        if name == "def":
            self._until("}")
        for _ in range(DROPPED[name]):
            self._raw()
        return ""

    def _letter(self, name: str) -> str:
        """A letter with an accent, an escaped letter, or a command that is not known."""
        if name in _ACCENTS:
            letter = self._argument()
            return letter[:1] + _ACCENTS[name] + letter[1:]
        if len(name) > 1 or name.isalpha():
            # What it is said of stays.
            if not self._tex.startswith("{", self._at):
                self._spaces()
            return ""
        if name in _SPACES:
            return _SPACES[name]
        return f"\\{name}" if name == "$" or _ESCAPED.match(name) else name

    def displayed(self) -> str:
        return f"\n\n$${' '.join(self._until(BACKSLASH + ']').split())}$$\n\n"

    def inline(self) -> str:
        return f"${' '.join(self._until(BACKSLASH + ')').split())}$"

    def begin(self) -> str:
        return self._environment(self._raw())

    def verb(self) -> str:
        self._at += 1
        return _code(self._until(self._tex[self._at - 1 : self._at]))

    def url(self) -> str:
        return f"<{self._raw()}>"

    def href(self) -> str:
        address = self._raw().replace(")", "%29").replace(" ", "%20")
        return f"[{self._argument()}]({address})"

    def line(self) -> str:
        self._optional()
        return "  \n"

    def _spaces(self) -> None:
        while self._tex.startswith(" ", self._at):
            self._at += 1

    def _styled(self, mark: str) -> str:
        if mark == "`":
            return _code(_plain(self._raw()))
        return _closed(f"\0{mark}" + self._argument(), mark) if mark else self._argument()

    def item(self) -> str:
        label = self._optional()
        depth = max(0, len(self._lists) - 1)
        mark = "1." if self._lists and self._lists[-1] == "enumerate" else "-"
        shown = _ESCAPED.sub(r"\\\1", label)
        named = f"**{shown}** " if label else ""
        self._spaces()
        return f"\n\n{'    ' * depth}{mark} {named}"

    def _environment(self, name: str) -> str:
        plain = name.rstrip("*")
        if plain in MATH:
            source = self._until(f"\\end{{{name}}}")
            inner = (
                f"\\begin{{aligned}}{source}\\end{{aligned}}" if "&" in source or "\\\\" in source else source
            )
            return f"\n\n$${' '.join(inner.split())}$$\n\n"
        if plain in VERBATIM:
            self._optional()
            inside = self._until(f"\\end{{{name}}}").strip("\n")
            return f"\n\n```\n{inside}\n```\n\n"
        if plain in ("itemize", "enumerate", "description", "compactitem"):
            self._optional()
            self._lists.append("enumerate" if plain == "enumerate" else "itemize")
            inside = self.text(name)
            self._lists.pop()
            return f"\n\n{inside}\n\n"
        if plain in ("tabular", "tabularx", "longtable"):
            self._argument()
            return _table(self._until(f"\\end{{{name}}}"))
        if plain in (
            "example",
            "examplewide",
            "examplethree",
            "figure",
            "wrapfigure",
            "tikzpicture",
            "thebibliography",
        ):
            self._until(f"\\end{{{name}}}")
            return ""
        for _ in range({"problem": 5, "minipage": 1, "wraptable": 2}.get(plain, 0)):
            self._raw()
        while plain == "problem" and self._tex.startswith("{", self._at):
            self._raw()
        return f"\n\n{self.text(name)}\n\n"


_OWN: Mapping[str, Callable[[_Reader], str]] = {
    "[": _Reader.displayed,
    "(": _Reader.inline,
    "\\": _Reader.line,
    "begin": _Reader.begin,
    "item": _Reader.item,
    "verb": _Reader.verb,
    "url": _Reader.url,
    "href": _Reader.href,
}
"""Commands whose arguments are read in a way of their own."""


def _closed(text: str, marks: str) -> str:
    """Ends a style before the spaces at its end: Markdown knows it only beside a letter."""
    if not marks:
        return text.replace("\0", "")
    head, _, tail = text.partition("\0")
    mark = marks[:2] if marks.startswith("**") else marks[:1]
    inside = tail.removeprefix(mark)
    body = inside.strip()
    if not body or "\n\n" in body:
        return head + inside.replace("\0", "")
    left = inside[: len(inside) - len(inside.lstrip())]
    right = inside[len(inside.rstrip()) :]
    body = body.replace("\0", "")
    return f"{head}{left}{_code(_plain(body)) if mark == '`' else mark + body + mark}{right}"


def _plain(text: str) -> str:
    """Without the escapes of TeX and Markdown."""
    return re.sub(r"\\([\\`*_\[\]<>#|{}%$&^~ ])", r"\1", text.replace("\\textbackslash", "\\"))


def _code(text: str) -> str:
    marks = "``" if "`" in text else "`"
    return f"{marks} {text} {marks}" if "`" in text else f"{marks}{text}{marks}" if text.strip() else text


def _table(source: str) -> str:
    rows = re.split(r"\\\\(?:\[[^\]]*\])?|\\tabularnewline", source)
    lines: list[list[str]] = []
    for row in rows:
        cleaned = re.sub(
            r"\\(?:hline|toprule|midrule|bottomrule)|\\c(?:line|midrule)\{[^}]*\}", "", row
        ).strip()
        if cleaned:
            lines.append(
                [
                    _Reader(cell.strip()).text().strip().replace("\n", " ")
                    for cell in re.split(r"(?<!\\)&", cleaned)
                ]
            )
    if not lines:
        return ""
    width = max(map(len, lines))
    shown = [f"| {' | '.join([*line, *[''] * (width - len(line))])} |" for line in lines]
    return "\n\n" + "\n".join([shown[0], "|" + " --- |" * width, *shown[1:]]) + "\n\n"
