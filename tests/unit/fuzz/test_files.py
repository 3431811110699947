"""Files that people write by hand, or that a broken disk has left: read, or refused in a line."""

import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import strategies as st

from fencepost.cli.exit_codes import UserError
from fencepost.errors import InvalidInput, SettingsError
from fencepost_judge.commands._contests import read_contest
from fencepost_nonces.sending._ethereum import accounts
from fencepost_nonces.sending._keys import Keystore
from fencepost_players._command_actions import _read as read_catalog_file  # pyright: ignore[reportPrivateUsage]
from fencepost_players._command_actions import catalog_calls
from fencepost_torture._goals import GOALS
from fencepost_torture._report import read_kept, read_score
from tests.unit.fuzz.feeding import LONG, QUICK, Parser, feed
from tests.unit.fuzz.hostile import DEEP, as_bytes, bodies, wrong_bytes, wrong_documents

ROOT = Path(__file__).parents[3]
PASSWORD = "hunter2"
DEEP_YAML = "[" * 20_000
"""Deeper than any limit of recursion: hypothesis raises it."""
CONTEST = {
    "title": "Autumn",
    "scoring": "icpc",
    "starts_at": "2026-10-03T09:00:00Z",
    "freeze_at": "2026-10-03T13:00:00Z",
    "ends_at": "2026-10-03T14:00:00Z",
    "problems": {"A": "fence-posts", "B": "painted-fence"},
}
CATALOG = {
    "items": {"sword": {"max_stack": 5}},
    "heroes": {"ada": None},
    "pools": {"summer": {"costs": {"gold": 1}}},
    "seasons": {
        "summer": {
            "1": {
                "opens_at": "2026-10-03T09:00:00Z",
                "closes_at": "2026-11-03T09:00:00Z",
                "entries": [{"item": "sword", "weight": 1}],
            }
        }
    },
}


def from_file(read: Callable[[Path], object], name: str) -> Callable[[bytes], None]:
    def written(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(data)
            read(path)

    return written


def read_catalog(path: Path) -> None:
    list(catalog_calls(read_catalog_file(path)))


def read_keys(path: Path) -> None:
    Keystore.read(path.parent, PASSWORD)


@cache
def keystore() -> dict[str, Any]:
    return dict(accounts().encrypt(bytes.fromhex("11" * 32), PASSWORD, kdf="pbkdf2", iterations=10))


def is_quick(document: Any) -> bool:
    """Millions of rounds are no fault of a file: they take their time, as they should."""
    try:
        rounds = document["crypto"]["kdfparams"]["c"]
    except (KeyError, TypeError):
        return True
    return not isinstance(rounds, int | float) or rounds < 1000


def a_score() -> dict[str, Any]:
    """A short one of those that are kept."""
    kept = json.loads((ROOT / "docs" / "results" / "power.json").read_text())
    return cast("dict[str, Any]", kept | {"runs": kept["runs"][:2]})


def read_goal(path: Path) -> None:
    score = read_score("power", path)
    score.facts()
    score.has_seed(score.next_seed)


def yaml_files(right: Any) -> st.SearchStrategy[bytes]:
    """YAML takes JSON. Its reader is slow where it is deep: that is tried once, below."""
    return st.one_of(
        st.binary(max_size=60),
        wrong_documents(right).map(as_bytes),
        wrong_bytes(as_bytes(right)),
        st.sampled_from([b"a: 2001-13-45", b"a: &a [*a]", b"? [1]\n: 2", b"!!python/object:x {}", b"a: 0x_"]),
    )


PARSERS = {
    "a contest": Parser(from_file(read_contest, "c.yaml"), yaml_files(CONTEST), (UserError,)),
    "a catalogue": Parser(from_file(read_catalog, "c.yaml"), yaml_files(CATALOG), (UserError, InvalidInput)),
    "a key": Parser(
        from_file(read_keys, "k.json"),
        st.one_of(
            st.binary(max_size=60),
            st.deferred(lambda: wrong_documents(keystore()).filter(is_quick).map(as_bytes)),
            st.just(DEEP[0].encode()),
        ),
        (SettingsError,),
    ),
    "runs of a goal": Parser(
        from_file(read_goal, "g.json"),
        st.one_of(
            bodies({"goal": "power", "runs": [{"seed": 1, "verdict": "passed"}]}),
            wrong_documents(a_score()).map(as_bytes),
            wrong_bytes(b'{"goal": "power", "runs": []}'),
        ),
        (ValueError,),
    ),
}


@pytest.mark.parametrize("name", PARSERS)
def test_any_file_is_read_or_refused(name: str) -> None:
    feed(PARSERS[name], QUICK)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PARSERS)
def test_any_file_is_read_or_refused_at_length(name: str) -> None:
    feed(PARSERS[name], LONG)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (DEEP_YAML, "nested too deeply"),
        ("7: {}", "7: unknown section"),
        ("items: 7", "items must be a mapping"),
        ("items: [a]", "items must be a mapping"),
        ("seasons: {summer: [1]}", "seasons.summer must be a mapping"),
        ("seasons: {summer: {1: }}", "seasons.summer.1 must be a mapping"),
        (
            "seasons: {summer: {1: {opens_at: 2026-10-03, closes_at: 2026-11-03, entries: 7}}}",
            "must be a list",
        ),
    ],
)
def test_a_catalogue_that_is_none_is_refused_by_its_place(text: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        from_file(read_catalog, "c.yaml")(text.encode())


def test_a_contest_without_a_floor_is_refused() -> None:
    with pytest.raises(UserError, match="no contest: line 1: it is nested too deeply"):
        from_file(read_contest, "c.yaml")(DEEP_YAML.encode())


@pytest.mark.parametrize(
    "text",
    ["[]", "7", '{"crypto": []}', '{"version": 3, "crypto": 7}', '{"version": 9, "crypto": {}}', DEEP[0]],
    ids=lambda t: t[:20],
)
def test_a_key_that_is_none_is_told_by_its_file(text: str) -> None:
    with pytest.raises(SettingsError, match=r"k\.json is no keystore file"):
        from_file(read_keys, "k.json")(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "7",
        "no figures",
        DEEP[0],
        '{"goal": "power"}',
        '{"goal": "power", "runs": 7}',
        '{"goal": "power", "runs": [7]}',
        '{"goal": "power", "runs": [{"seed": 1}]}',
        '{"goal": "power", "runs": [{"seed": "x", "verdict": "void", "lost": 0, "doubled": 0}]}',
    ],
    ids=lambda text: text[:60],
)
def test_a_file_without_the_runs_of_a_goal_is_not_written_over(text: str) -> None:
    with pytest.raises(ValueError, match=r"g\.json (has|does not have|is not a torture result)"):
        from_file(read_goal, "g.json")(text.encode())


def test_what_was_kept_is_read() -> None:
    kept = [path for path in (ROOT / "docs" / "results").glob("*.json") if "runs" in read_kept(path)]

    assert kept
    for path in kept:
        goal = str(read_kept(path)["goal"])
        assert goal in GOALS
        assert len(read_score(goal, path).runs) == len(json.loads(path.read_text())["runs"])
