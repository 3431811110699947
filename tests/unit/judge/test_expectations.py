"""What submissions.yaml says, as rules about tests."""

from typing import Any

import pytest

from fencepost.errors import InvalidInput
from fencepost_judge._grading import CaseResult
from fencepost_judge._time_limit import limit_ms
from fencepost_judge.packages._expectations import (
    Requirement,
    Rule,
    check_document,
    expectations_of,
    matches,
    tagged,
)
from fencepost_judge.packages._icpc import Multipliers


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("accepted", "accepted/a.py", True),
        ("accepted/*", "accepted/a.py", True),
        ("accepted/*.cpp", "accepted/a.py", False),
        ("*", "accepted/a.py", True),
        ("*/a.py", "accepted/a.py", True),
        ("a*", "b/a.py", False),
        ("secret/*-easy", "secret/1-easy", True),
        ("secret/*-easy", "secret/g/1-easy", False),
        ("secret/{a,b}", "secret/b/1", True),
        ("x.{py,cpp}", "x.cpp", True),
        ("x.{py,cpp}", "xzpy", False),
    ],
)
def test_patterns(pattern: str, path: str, fits: bool) -> None:
    assert matches(pattern, path) is fits


def results(**verdicts: str) -> list[CaseResult]:
    return [
        CaseResult(name=f"secret/{name}", verdict=verdict, message="it differs" if verdict == "WA" else "")
        for name, verdict in verdicts.items()
    ]


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"permitted": ["AC", "WA", "RTE"]}, ""),
        ({"permitted": ["AC", "WA"]}, "secret/c is MLE"),
        ({"required": ["WA"]}, ""),
        ({"required": ["TLE"]}, "no test is TLE"),
        ({"message": "differs"}, ""),
        ({"message": "equal"}, "no test says 'equal'"),
        ({"score": 3}, ""),
        ({"score": [2, 4]}, ""),
        ({"score": [4, 5]}, "the score is 3"),
    ],
)
def test_a_rule_says_why_it_is_broken(wanted: dict[str, Any], why: str) -> None:
    rule = Rule(None, Requirement.model_validate(wanted))

    said = rule.broken_by(results(a="AC", b="WA", c="MLE", d="SK"), 3)
    assert said == "" if not why else why in said


def bounds(name: str, document: dict[str, Any] | None = None, *, is_new: bool = True) -> list[str]:
    return [bound for bound, _ in expectations_of(name, document or {}, is_new=is_new).bounds]


def test_which_submissions_tell_about_time() -> None:
    assert bounds("accepted/a") == bounds("wrong_answer/a") == bounds("run_time_error/a") == ["lower"]
    assert bounds("time_limit_exceeded/a") == ["upper"]
    assert bounds("brute_force/a") == bounds("rejected/a") == bounds("odd/a") == []
    assert bounds("wrong_answer/a", is_new=False) == []
    assert bounds("accepted/a", is_new=False) == ["lower"]
    assert bounds("accepted/a", {"accepted": {"use_for_time_limit": False}}) == []
    assert bounds("odd/a", {"odd/a": {"use_for_time_limit": "upper"}}) == ["upper"]
    assert bounds("odd/a", {"odd": {"secret/g": {"permitted": ["AC"]}}}) == ["lower"]


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"accepted": {"permited": ["AC"]}}, "permited is not known"),
        ({"accepted": {"permitted": ["OK"]}}, "permitted"),
        ({"accepted": [1]}, "keys to values"),
        ({"**/x": {}}, "pattern"),
        ({"[ab]": {}}, "pattern"),
        ({"accepted": {"secret/g": {"score": 3}}}, "score of secret/g alone"),
        ({"accepted": {"entrypoint": "../x"}}, "entrypoint"),
    ],
)
def test_what_is_not_known_there_is_refused(document: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        check_document(document)


@pytest.mark.parametrize(
    ("slowest_ms", "factor", "resolution", "limit"),
    [(0, 2, 1.0, 1000), (500, 2, 1.0, 1000), (501, 2, 1.0, 2000), (120, 5, 1.0, 1000), (1300, 2, 0.5, 3000)],
)
def test_the_limit_is_the_least_multiple_that_leaves_the_slowest_its_factor(
    slowest_ms: int, factor: float, resolution: float, limit: int
) -> None:
    assert limit_ms(slowest_ms, Multipliers(factor, 1.5, resolution, strict=True)) == limit


@pytest.mark.parametrize(
    ("source", "verdicts", "broken"),
    [
        ("// @EXPECTED_RESULTS@: WRONG-ANSWER, TIMELIMIT", {"WA", "PE", "TLE"}, ""),
        ("/* @EXPECTED_RESULTS@: run_error */ int x;", {"RE", "MLE"}, ""),
        ("# @EXPECTED_SCORE@: 40", {"AC"}, ""),
        ("# @EXPECTED_SCORE@: 30 50", {"AC"}, ""),
        ("# @EXPECTED_SCORE@: 41", {"AC"}, "the score is 40.0, not within 41 to 41"),
        ("int main(){}", {"AC"}, ""),
    ],
)
def test_a_program_says_itself_what_is_expected_of_it(source: str, verdicts: set[str], broken: str) -> None:
    usual = expectations_of("accepted/x.c", {}, is_new=False)
    found = tagged(usual, "accepted/x.c", {"x.c": source.encode()})

    assert found.verdicts == verdicts
    assert [why for rule in found.rules if (why := rule.broken_by([], 40.0))] == ([broken] if broken else [])


def test_a_tag_that_is_misspelt_is_refused() -> None:
    with pytest.raises(InvalidInput, match="WRONG-ANSWR"):
        tagged(
            expectations_of("accepted/x.c", {}, is_new=False),
            "x.c",
            {"x.c": b"@EXPECTED_RESULTS@: WRONG-ANSWR"},
        )


def test_a_program_ended_for_its_memory_or_output_is_a_run_time_error_of_the_format() -> None:
    assert expectations_of("run_time_error/a", {}, is_new=True).verdicts == {"RE", "MLE", "OLE"}


@pytest.mark.parametrize(
    ("word", "verdict"),
    [
        ("TIME_LIMIT_EXCEEDED", "TLE"),
        ("RUN_TIME_ERROR", "RE"),
        ("WRONG_ANSWER", "WA"),
        ("NO_OUTPUT", "WA"),
        ("NONE-INVALID-SUBMISSION", "CE"),
    ],
)
def test_tags_have_the_words_of_folders_too(word: str, verdict: str) -> None:
    source = {"a.py": f"# @EXPECTED_RESULTS@: {word}\n".encode()}
    assert (
        verdict in tagged(expectations_of("rejected/a.py", {}, is_new=True), "rejected/a.py", source).verdicts
    )
