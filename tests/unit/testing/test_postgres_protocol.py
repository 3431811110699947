"""The PostgreSQL protocol, as far as faults need it."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.testing._postgres_protocol import Messages, asks_to_commit, says_committed

STARTUP = struct.pack("!ii", 16, 196608) + b"user\0me\0"


def typed(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


CONVERSATION = [
    STARTUP,
    typed(b"Q", b"begin\0"),
    typed(b"S", b""),
    typed(b"Q", b"commit\0"),
    typed(b"X", b""),
]


@given(st.lists(st.integers(0, sum(map(len, CONVERSATION)))))
def test_messages_come_out_whole_wherever_the_stream_is_cut(cuts: list[int]) -> None:
    stream = b"".join(CONVERSATION)
    edges = [0, *sorted(cuts), len(stream)]
    splitter = Messages(first_has_type=False)
    pieces = (stream[start:end] for start, end in itertools.pairwise(edges))
    assert [message for piece in pieces for message in splitter.feed(piece)] == CONVERSATION


def test_a_server_s_first_message_has_a_type() -> None:
    ready = typed(b"Z", b"I")
    assert Messages(first_has_type=True).feed(ready) == [ready]


@pytest.mark.parametrize("text", [b"COMMIT", b"commit", b" Commit ; ", b"END", b"commit work"])
def test_a_commit_is_known_by_both_protocols(text: bytes) -> None:
    assert asks_to_commit(typed(b"Q", text + b"\0"))
    assert asks_to_commit(typed(b"P", b"name\0" + text + b"\0" + b"\0\0"))


@pytest.mark.parametrize(
    "message",
    [
        STARTUP,
        typed(b"Q", b"select 'commit'\0"),
        typed(b"Q", b"commit prepared 'x'\0"),
        typed(b"B", b"COMMIT\0"),
        typed(b"d", b"COMMIT\0"),
    ],
)
def test_what_is_no_commit_is_not_taken_for_one(message: bytes) -> None:
    assert not asks_to_commit(message)


def test_the_answer_to_a_commit_is_known() -> None:
    assert says_committed(typed(b"C", b"COMMIT\0"))


@pytest.mark.parametrize(
    "message", [typed(b"C", b"ROLLBACK\0"), typed(b"D", b"COMMIT\0"), typed(b"C", b"INSERT 0 1\0")]
)
def test_another_answer_is_not_taken_for_it(message: bytes) -> None:
    assert not says_committed(message)
