"""YAML that a stranger wrote: plain values within a budget, everything else refused before it is built."""

import time
import tracemalloc
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, cast

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fencepost.strict_yaml import Budget, YamlError, load_yaml


def alias_bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels)]
    return "\n".join(lines)


def merge_bomb(levels: int) -> str:
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (alias_bomb(9), "anchor"),
        (merge_bomb(9), "anchor"),
        ("a: *b", "alias"),
        ("a: {<<: {b: 1}}", "merge key"),
        ("a: 1\na: 2", "line 2: a key occurs twice"),
        ("'1': 1\n1: 2", "twice"),
        ("a: !!python/object:os.system x", "tag"),
        ("a: !!binary aGk=", "tag"),
        ("a: !!set {b}", "tag"),
        ("a: !own b", "tag"),
        ("a: " + "9" * 5000, "number"),
        ("a: 1:" + "1:" * 300_000 + "1", "number"),
        ("a: 1:30", "colons"),
        ("? [a, b]\n: 1", "a key must be"),
        ("[" * 20_000, "nested"),
        ("{a: " * 20_000, "nested"),
        ("- " * 20_000 + "x", "nested"),
        ("a: 1\n---\nb: 2", "second document"),
        ("a: [" + "1," * 100_001 + "]", "values"),
        ("x" * (1 << 20) + "xx", "bytes"),
        ("a: 2026-13-45", "not YAML"),
        ("a: [", "not YAML"),
        ("a: \x01", "not YAML"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else None,
)
def test_what_is_more_than_plain_values_is_refused_at_once_and_cheaply(text: str, why: str) -> None:
    tracemalloc.start()
    begun = time.process_time()
    try:
        with pytest.raises(YamlError, match=why):
            load_yaml(text)
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert most_bytes < 100 << 20
    assert time.process_time() - begun < 20


def test_the_bombs_are_bombs_for_the_usual_loader() -> None:
    """Small ones: what they unfold to grows ninefold with each level."""

    def leaves(value: Any) -> int:
        return sum(leaves(one) for one in cast("list[object]", value)) if isinstance(value, list) else 1

    assert leaves(yaml.safe_load(alias_bomb(5))["a4"]) == 9**5


def test_plain_values_are_read_as_ever() -> None:
    text = "a: 1\nb: [x, 2.5, true, null, '7']\nc: {d: 2026-10-03T09:00:00Z, e: }\n7: seven\n"

    assert load_yaml(text) == yaml.safe_load(text)
    assert load_yaml(text)["c"]["d"] == datetime(2026, 10, 3, 9, tzinfo=UTC)
    assert load_yaml("") is None
    assert load_yaml("# nothing\n") is None


def test_a_refusal_does_not_quote_the_text() -> None:
    for text in ("password: hunter2: x", "password: &a hunter2", "password: !x hunter2", "? [hunter2]\n: 1"):
        with pytest.raises(YamlError) as caught:
            load_yaml(text)
        assert "hunter2" not in str(caught.value)


def test_the_budget_is_the_callers() -> None:
    with pytest.raises(YamlError, match="more than 3 values"):
        load_yaml("[1, 2, 3]", Budget(nodes_max=3))
    with pytest.raises(YamlError, match="more than 1 level"):
        load_yaml("[[1]]", Budget(depth_max=1))


@given(st.one_of(st.text(max_size=60), st.text(alphabet="ab:-[]{}&*<!?|>'\"\n #1.,", max_size=60)))
def test_anything_is_read_or_refused_in_one_way(text: str) -> None:
    with suppress(YamlError):
        load_yaml(text)
