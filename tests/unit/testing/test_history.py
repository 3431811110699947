"""The history, and rules that see what is wrong with it."""

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from fencepost.testing import (
    Breach,
    History,
    HistoryBroken,
    HistoryLine,
    at_most_once,
    breaches,
    check,
    once,
    tokens_grow,
)


def asked(key: str) -> HistoryLine:
    return HistoryLine("asked", key)


def done(key: str, token: int | None = None) -> HistoryLine:
    return HistoryLine("done", key, token)


def test_what_was_recorded_is_read_in_its_order(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    assert history.entries() == []
    history.record("asked", "order-7")
    history.record("done", "order-7", token=3, price=5)
    first, second = history.entries()
    assert (first.kind, first.key, first.token) == ("asked", "order-7", None)
    assert (second.kind, second.token, second.detail) == ("done", 3, {"price": 5})


def test_writers_do_not_tear_each_other_s_lines(tmp_path: Path) -> None:
    def write(name: str) -> None:
        for turn in range(100):
            History(tmp_path / "history").record("done", f"{name}-{turn}", filler="x" * 300)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({entry.key for entry in History(tmp_path / "history").entries()}) == 400


def test_each_effect_once_is_no_breach() -> None:
    check([asked("a"), asked("b"), done("b"), done("a")], once(), at_most_once())


@pytest.mark.parametrize(
    ("entries", "what"),
    [
        ([asked("a")], "was lost"),
        ([asked("a"), done("a"), done("a")], "took effect 2 times"),
        ([done("a")], "took effect, and was never requested"),
    ],
)
def test_lost_doubled_and_unasked_effects_are_seen(entries: list[HistoryLine], what: str) -> None:
    assert breaches(entries, once()) == [Breach("once", "a", what)]


def test_what_did_not_happen_is_no_breach_of_at_most_once() -> None:
    assert breaches([asked("a"), done("b"), done("b")], at_most_once()) == [
        Breach("at most once", "b", "took effect 2 times")
    ]


def test_a_zombie_s_write_after_its_successor_is_seen() -> None:
    entries = [done("a", 1), done("a", 1), done("a", 2), done("b", 1), done("a", 1)]
    assert breaches(entries, tokens_grow()) == [
        Breach("tokens grow", "a", "was written under token 1 after 2")
    ]


def test_a_test_s_own_rule_stands_beside_ours() -> None:
    def cheap(entries: Sequence[HistoryLine]) -> Iterable[Breach]:
        return [
            Breach("cheap", entry.key, "costs too much") for entry in entries if entry.detail["price"] > 5
        ]

    with pytest.raises(
        HistoryBroken, match=r"(?s)2 breaches in 1 entries.*once: a took.*cheap: a costs too much"
    ):
        check([HistoryLine("done", "a", detail={"price": 6})], once(), cheap)
