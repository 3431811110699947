"""What strangers send: any bytes, any text, and right documents with something wrong in them."""

import copy
import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

Json = Any

# Text that breaks what is careless: nothing, zero bytes, other digits, halves of characters, very long.
NASTY = st.sampled_from(
    [
        "",
        "\0",
        "²",
        "\u0661",
        "\ud800",
        "\U0001d7cf",
        "a" * 5000,
        "%s",
        "{}",
        "../..",
        "'; --",
        "1e999999",
        "-1",
        "NaN",
        "\r\n",
    ]
)
TEXTS = st.one_of(st.text(max_size=60), NASTY)
NUMBERS = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([0, -1, 2**31, 2**53, 2**63, 2**64, 10**400, 1e308, float("inf"), float("nan")]),
)
DOCUMENTS: st.SearchStrategy[Json] = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=8,
)
DEEP = ("[" * 3000, '{"a":' * 3000, "[" * 500 + "]" * 500)


@st.composite
def wrong_documents(draw: st.DrawFn, right: Json) -> Json:
    """The right document with a few of its values replaced or left out."""
    document = copy.deepcopy(right)
    for _ in range(draw(st.integers(1, 3))):
        place: Any = document
        while _is_full(place):
            key = draw(st.sampled_from(_places(place)))
            if _is_full(place[key]) and draw(st.booleans()):
                place = place[key]
                continue
            if draw(st.booleans()):
                place[key] = draw(DOCUMENTS)
            else:
                del place[key]
            break
    return document


def _is_full(value: Any) -> bool:
    return bool(value) and (hasattr(value, "keys") or hasattr(value, "append"))


def _places(value: Any) -> list[Any]:
    return sorted(value.keys()) if hasattr(value, "keys") else list(range(len(value)))


@st.composite
def wrong_bytes(draw: st.DrawFn, right: bytes) -> bytes:
    """The right bytes with a few cut out, doubled or replaced."""
    data = bytearray(right)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        upto = draw(st.integers(at, min(len(data), at + 12)))
        data[at:upto] = draw(
            st.one_of(st.just(b""), st.binary(max_size=8), st.just(bytes(data[at:upto]) * 2))
        )
    return bytes(data)


@st.composite
def wrong_text(draw: st.DrawFn, right: str) -> str:
    """The right text with a few characters cut out, doubled or replaced; or any text."""
    if draw(st.integers(0, 4)) == 0:
        return draw(TEXTS)
    text = right
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        upto = draw(st.integers(at, min(len(text), at + 6)))
        text = text[:at] + draw(st.one_of(st.just(""), TEXTS, st.just(text[at:upto] * 2))) + text[upto:]
    return text


def bodies(right: Json) -> st.SearchStrategy[bytes]:
    """A body as it comes over the wire: anything, or nearly right."""
    encoded = json.dumps(right).encode()
    return st.one_of(
        st.binary(max_size=100),
        wrong_documents(right).map(as_bytes),
        wrong_bytes(encoded),
        DOCUMENTS.map(as_bytes),
        st.sampled_from([deep.encode() for deep in DEEP]),
    )


def as_bytes(document: Json) -> bytes:
    return json.dumps(document).encode()


def fuzzed(examples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """So many tries, and no more when one has failed: it is printed as it is."""
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
