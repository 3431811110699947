"""The catalogue of words: messages of templates and scripts, languages, and translations that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jinja2 import Environment
from markupsafe import Markup

from fencepost.errors import SettingsError
from fencepost_server.web.words import (
    Catalogue,
    TemplateWords,
    Words,
    load_catalogue,
    say,
    script_messages,
    script_words,
    shown_word,
    template_messages,
    use,
)

GERMAN = Words("de", {"Hello {0}, <b>": "Hallo {0}, <b>", "{count} jobs": "{count} Jobs", "look": "ansehen"})


def rendered(source: str, **values: object) -> str:
    environment = Environment(extensions=[TemplateWords], autoescape=True)
    return environment.from_string(source).render(**values, say=shown_word)


@pytest.mark.parametrize(
    ("source", "messages"),
    [
        ("<p>Of {{ a }}, {{ b|upper }}.</p>", ["Of {0}, {1}."]),
        ("<td>{{ a }}</td>, <td> / </td>", []),
        ("<p>\n  by {{ a }}\n</p>", ["by {0}"]),
        ('<a title="look" href="/look">{% if a %}look{% endif %}</a>', ["look", "look"]),
        ('<p aria-label="{% if a %}x{% endif %}">&middot;</p>', []),
        ("<code>make bench</code> <pre>as it is</pre> and more", ["and more"]),
        ('<i data-x="{{ "a>b" }}">in &lt;b&gt;</i>', ["in <b>"]),
        ("{# none of it #}{% set x = 'no text' %}", []),
    ],
)
def test_a_text_between_tags_is_one_message_with_its_expressions(source: str, messages: list[str]) -> None:
    assert template_messages(source) == messages


def test_a_template_reads_the_same_without_a_language() -> None:
    source = '<p class="x">\n Of {{ a }}, <b title="to {{ b }}">"{{ b }}" &amp; 3 {a}</b></p>'
    plain = Environment(autoescape=True).from_string(source).render(a="<i>", b=7)
    assert rendered(source, a="<i>", b=7).replace("&#34;", '"') == plain


def test_what_is_put_into_a_message_is_escaped_and_a_translation_too() -> None:
    use(GERMAN)
    try:
        assert rendered("<p>Hello {{ a }}, &lt;b&gt;</p>", a="<i>") == "<p>Hallo &lt;i&gt;, &lt;b&gt;</p>"
        assert rendered("<p>Hello {{ a }}, &lt;b&gt;</p>", a=Markup("<i>")) == "<p>Hallo <i>, &lt;b&gt;</p>"
        assert say("{count} jobs", count=3) == "3 Jobs"
        assert say("not there {x}", x="{count}") == "not there {count}"
        assert shown_word(7) == 7
    finally:
        use(Words())


def test_the_first_language_that_there_is_is_taken() -> None:
    catalogue = Catalogue("auto", {"de": GERMAN})
    assert catalogue.words_for("fr, de-CH;q=0.8, en;q=0.9") == Words()
    assert catalogue.words_for("fr, de-CH;q=0.9, en;q=0.8") is GERMAN
    assert catalogue.words_for("de;q=0, x;q=y,") == Words()
    assert Catalogue("de", {"de": GERMAN}).words_for("en") is GERMAN


def test_a_file_that_is_no_translation_is_refused(tmp_path: Path) -> None:
    for name, content in (
        ("de.json", "[]"),
        ("de.json", "{"),
        ("de.json", '{"a": 1}'),
        ("de.json", '{"{count} jobs": "Jobs"}'),
        ("german language.json", "{}"),
    ):
        (tmp_path / name).write_text(content, "utf-8")
        with pytest.raises(SettingsError):
            load_catalogue("auto", tmp_path)
        (tmp_path / name).unlink()
    with pytest.raises(SettingsError, match="no language 'xx'"):
        load_catalogue("xx")
    (tmp_path / "xx.json").write_text('{"look": "regarder"}', "utf-8")
    assert load_catalogue("xx", tmp_path).words_for("").of("look") == "regarder"


def test_scripts_get_their_messages_and_nothing_that_ends_their_element() -> None:
    assert script_messages('tell(say("no answer for {seconds} s", { seconds }), say(kind))') == [
        "no answer for {seconds} s"
    ]
    told = script_words(Words("xx", {"look": "</script>", "other": "x"}), {"look"})
    assert "<" not in told
    assert json.loads(told) == {"look": "</script>"}


def test_german_says_what_the_english_says() -> None:
    catalogue = load_catalogue()
    english = json.loads(
        (
            Path(__file__).parents[3] / "packages/fencepost-server/src/fencepost_server/web/words/en.json"
        ).read_text("utf-8")
    )
    assert set(catalogue.languages["de"].messages) <= set(english)
