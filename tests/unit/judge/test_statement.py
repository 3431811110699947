"""Statements: Markdown and formulas, and nothing that could run."""

import pytest

from fencepost_judge.pages._html_statement import render_html
from fencepost_judge.pages._statement import FORMULA_MAX, render
from fencepost_judge.pages._verdicts import verdict_of, worth


def test_markdown_and_formulas_become_what_a_browser_shows() -> None:
    shown = render("# Sum\n\nGiven $0 \\le a_i$ and\n\n$$\\sum_{i=1}^n \\frac{a_i}{2}$$\n\n## Input\n", "Sum")

    assert "<h1>" not in shown
    assert "<h2>Input</h2>" in shown
    assert "<mo>≤</mo>" in shown
    assert "<msub><mi>a</mi><mi>i</mi></msub>" in shown
    assert "<munderover><mo>∑</mo>" in shown
    assert "<mfrac>" in shown


def test_money_is_no_formula_and_code_stays_code() -> None:
    shown = render("It costs $5 or $6.\n\nWrite `$x$`, or \\$7.", "x")

    assert "math" not in shown
    assert "It costs $5 or $6." in shown
    assert "<code>$x$</code>, or $7." in shown


def test_a_table_has_a_frame_of_its_own_and_another_heading_goes_below_the_title() -> None:
    shown = render("# Another\n\n| a |\n|---|\n| 1 |\n", "Title")

    assert "<h2>Another</h2>" in shown
    assert '<div class="scroll" tabindex="0" role="region" aria-label="Table"><table>' in shown


@pytest.mark.parametrize(
    "evil",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[x](javascript:alert(1))",
        "[x](data:text/html,<script>alert(1)</script>)",
        "![x](http://elsewhere.example/x.png)",
        '[x](http://a.example "\\" onclick=alert(1) \\"")',
        "<javascript:alert(1)>",
        "$\\text{<script>alert(1)</script>}$",
        "$\\text{&lt;script&gt;alert(1)&lt;/script&gt;}$",
        "$\\href{javascript:alert(1)}{x}$",
        "$\\style{background:url(x)}{x}\\class{evil}{y}$",
        "$<img src=x onerror=alert(1)>$",
        '```"><script>alert(1)</script>\nx\n```',
    ],
)
def test_nothing_of_it_runs_leads_to_a_script_or_asks_another_host(evil: str) -> None:
    shown = render(evil, "x")

    for mark in (
        "<script",
        "<img",
        'onclick=alert(1) "',
        'href="javascript',
        'href="data',
        "style=",
        'class="evil',
    ):
        assert mark not in shown


@pytest.mark.parametrize(
    "formula",
    [
        "\\frac{",
        "{" * 900,
        "x^2^3",
        "\\begin{cases} a",
        "\\def\\a{bb}\\def\\b{\\a\\a}\\b",
        "\\newcommand{\\a}{bb}\\a",
        "x" * (FORMULA_MAX + 1),
    ],
)
def test_a_formula_that_is_not_understood_is_shown_as_it_was_written(formula: str) -> None:
    assert f'<code class="tex">{formula}</code>' in render(f"${formula}$", "x")


def test_verdicts_have_words_and_points_no_needless_fraction() -> None:
    assert (verdict_of("TLE").words, verdict_of(None).words, verdict_of("NEW").words) == (
        "time limit exceeded",
        "waiting",
        "new",
    )
    assert [worth(value) for value in (None, 30.0, 33.5, 0.0, 100.0)] == ["", "30", "33.5", "0", "100"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("<p onclick=x>a <b>b</b></p>", "<p>a <b>b</b></p>"),
        ("<script>alert(1)</script>x<style>p{}</style>", "x"),
        ("<div class='header'><div>Title</div></div><p>x</p>", "<p>x</p>"),
        ("<div class='sample-tests'><pre>1</pre></div>y", "y"),
        ("<svg><script>1</script></svg>z", "z"),
        ("<a href='javascript:alert(1)'>here</a>", "here"),
        ("<img src=x onerror=alert(1) alt='A &lt;b&gt;'>", '<span class="picture">A &lt;b&gt;</span>'),
        ("<td colspan=2 rowspan='9999' style=x>c", '<td colspan="2">c</td>'),
        ("<ul><li>a<li>b</ul>c", "<ul><li>a<li>b</li></li></ul>c"),
        ("&lt;script&gt;", "&lt;script&gt;"),
        ("<iframe src=//x></iframe><object data=x></object>", ""),
        ("</p></div>x", "x"),
        ("<h1>Big</h1>", "<h2>Big</h2>"),
        ("<code>$x$</code>", "<code>$x$</code>"),
    ],
)
def test_html_keeps_what_a_statement_needs_and_nothing_that_runs(given: str, shown: str) -> None:
    assert render_html(given) == shown


def test_formulas_in_html_become_mathml() -> None:
    shown = render_html("<p>Given $$$n \\le 5$$$ and $m$.</p>")

    assert shown.count("<math") == 2
    assert "$" not in shown
