from __future__ import annotations

import pytest

from fencepost.cli.findings import Finding, FindingState, as_json, as_text, is_healthy

GOOD = Finding("this machine", "Python", FindingState.OK, "3.11.7", required=True)
NO_POSTGRES = Finding(
    "this machine", "PostgreSQL", FindingState.LACKING, "not found", "Install it.", required=True
)
NO_GO = Finding("compilers", "go", FindingState.LACKING, "not found", "Install it (Debian: golang-go).")
SLOW = Finding("Redis", "eviction", FindingState.DEGRADED, "may vanish", "Set noeviction.", required=True)


def test_only_what_is_required_and_lacking_makes_it_unhealthy() -> None:
    assert is_healthy([GOOD, NO_GO, SLOW])
    assert not is_healthy([GOOD, NO_POSTGRES])


def test_a_lack_needs_a_remedy() -> None:
    with pytest.raises(AssertionError, match="needs a remedy"):
        Finding("compilers", "go", FindingState.LACKING, "not found")


def test_the_text_shows_each_remedy_and_ends_with_the_verdict() -> None:
    assert as_text([GOOD, NO_GO, SLOW]).splitlines() == [
        "this machine",
        "  ✓ Python    3.11.7",
        "compilers",
        "  ✗ go        not found",
        "              → Install it (Debian: golang-go).",
        "Redis",
        "  ~ eviction  may vanish",
        "              → Set noeviction.",
        "",
        "Everything required is present. Optional and lacking: 1.",
    ]
    assert as_text([NO_POSTGRES]).endswith("Required and lacking: PostgreSQL.")


def test_the_json_is_the_same_as_values() -> None:
    shown = as_json([NO_POSTGRES])
    assert shown["ok"] is False
    assert shown["findings"] == [
        {
            "area": "this machine",
            "name": "PostgreSQL",
            "state": "lacking",
            "detail": "not found",
            "remedy": "Install it.",
            "required": True,
        }
    ]
