"""Statements of packages: which is shown, and TeX as Markdown."""

from pathlib import Path

import pytest

from fencepost.errors import InvalidInput
from fencepost_judge._store import Store
from fencepost_judge.packages._reading import read_problem
from fencepost_judge.packages._tex import markdown_of
from tests.unit.judge.test_packages import LEGACY, write


@pytest.mark.parametrize(
    ("tex", "markdown"),
    [
        ("\\problemname{X}\nHello.", "Hello."),
        ("a \\emph{b} {\\bf c} \\texttt{d\\_e*}", "a *b* **c** `d_e*`"),
        ("50\\% of \\$5 % a remark\nand more", "50% of \\$5 and more"),
        ("$a_1*b$ and \\(c\\)", "$a_1*b$ and $c$"),
        ("\\[ x \\]", "$$x$$"),
        ("\\begin{align*} a &= b \\end{align*}", "$$\\begin{aligned} a &= b \\end{aligned}$$"),
        ("\\begin{itemize}\n\\item one\n\\item two\n\\end{itemize}", "- one\n\n- two"),
        (
            "\\begin{enumerate}\\item a\\begin{itemize}\\item b\\end{itemize}\\end{enumerate}",
            "1. a\n\n    - b",
        ),
        ("\\InputFile\nn\n\\OutputFile\nm", "## Input\n\nn\n\n## Output\n\nm"),
        ("\\section*{Output}\nx", "## Output\n\nx"),
        (
            "\\begin{tabular}{|c|c|}\\hline a & b \\\\ \\hline 1 & $x$ \\\\ \\end{tabular}",
            "| a | b |\n| --- | --- |\n| 1 | $x$ |",
        ),
        ("\\begin{verbatim}\na % b\n\\end{verbatim}", "```\na % b\n```"),
        ("G\\\"odel ``said'' a---b", "Gödel “said” a—b"),
        ("\\unknown{kept} text", "kept text"),
        ("a_b <c> [d] #", "a\\_b \\<c\\> \\[d\\] \\#"),
        ("\\href{http://a.b/c}{here} \\url{http://x}", "[here](http://a.b/c) <http://x>"),
        ("\\begin{example}\\exmp{1}{2}\\end{example}x", "x"),
        ("\\begin{document}in\\end{document}out", "in"),
        ("{{{{", ""),
        ("\\begin{itemize}", ""),
        ("$open", "\\$open"),
    ],
)
def test_tex_becomes_markdown(tex: str, markdown: str) -> None:
    got = markdown_of(tex)

    assert " ".join(line.strip() for line in got.split("\n") if line) == " ".join(
        line.strip() for line in markdown.split("\n") if line
    )


def test_tex_that_is_nested_without_end_is_read_in_bounded_time() -> None:
    assert len(markdown_of("{\\bf " * 5000 + "x" + "\\begin{center}" * 5000)) < 100_000


def test_markdown_is_shown_before_tex_and_everything_else_is_kept(tmp_path: Path) -> None:
    files = LEGACY | {
        "problem_statement/problem.en.tex": "\\bf{old}",
        "problem_statement/problem.sv.tex": "Hej",
        "problem_statement/problem.sv.html": "<p>Hej</p>",
        "problem_statement/problem.en.pdf": "%PDF-1.7",
    }
    problem = read_problem(write(tmp_path / "p", files), Store(tmp_path / "store")).problem

    assert problem.statement == "# Old\n"
    assert [(one.language, one.format) for one in problem.statements] == [
        ("en", "markdown"),
        ("en", "tex"),
        ("en", "pdf"),
        ("sv", "tex"),
        ("sv", "html"),
    ]


def test_a_package_with_tex_alone_has_a_statement(tmp_path: Path) -> None:
    files = {name: text for name, text in LEGACY.items() if not name.startswith("problem_statement")}
    read = read_problem(
        write(tmp_path / "p", files | {"problem_statement/problem.tex": "\\problemname{P}Add $a$."}),
        Store(tmp_path / "store"),
    )

    assert read.problem.statement == "Add $a$.\n"


def test_markdown_alone_is_stored_as_before(tmp_path: Path) -> None:
    assert not read_problem(write(tmp_path / "p", LEGACY), Store(tmp_path / "store")).problem.statements


def test_a_file_that_is_no_pdf_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no PDF"):
        read_problem(
            write(tmp_path / "p", LEGACY | {"problem_statement/problem.en.pdf": "<script>"}),
            Store(tmp_path / "s"),
        )
