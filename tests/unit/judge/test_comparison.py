"""Whether an output is right."""

import pytest

from fencepost.errors import InvalidInput
from fencepost_judge._comparison import Comparison, ExpectedAnswer, compare


@pytest.mark.parametrize(
    ("output", "answer", "flags", "expected"),
    [
        (b"1 2 3\n", b"1 2 3\n", "", "AC"),
        (b"1\n2\n3", b"1 2 3\n", "", "AC"),
        (b"yes\n", b"YES\n", "", "AC"),
        (b"yes\n", b"YES\n", "case_sensitive", "WA"),
        (b"1 2\n", b"1 2 3\n", "", "WA"),
        (b"1 2 3 4\n", b"1 2 3\n", "", "WA"),
        (b"", b"1\n", "", "WA"),
        (b"", b"", "", "AC"),
        (b"1  2\n", b"1 2\n", "space_change_sensitive", "WA"),
        (b"1 2\r\n", b"1 2\n", "space_change_sensitive", "AC"),
        (b"1  2\n", b"1 2\n", "presentation_errors", "PE"),
        (b"1 3\n", b"1 2\n", "presentation_errors", "WA"),
        (b"1 2", b"1 2\n", "exact", "WA"),
        (b"1 2\n", b"1 2\n", "exact", "AC"),
        (b"0.1000001", b"0.1", "float_tolerance 1e-6", "AC"),
        (b"0.1", b"0.1000001", "", "WA"),
        (b"1000001", b"1000000", "float_tolerance 1e-5", "AC"),
        (b"1000001", b"1000000", "float_absolute_tolerance 1e-5", "WA"),
        (b"0.00001", b"0.0", "float_relative_tolerance 1e-3", "WA"),
        (b"1e0", b"1.0", "float_tolerance 1e-9", "AC"),
        (b"nan", b"1.0", "float_tolerance 1e-3", "WA"),
        (b"inf", b"1.0", "float_tolerance 1e-3", "WA"),
        (b"1_0", b"10", "float_tolerance 1e-3", "WA"),
        (b"1e", b"1", "float_tolerance 1e-3", "WA"),
        (b"+-1", b"1", "float_tolerance 1e-3", "WA"),
        (b"nan", b"nan", "float_tolerance 1e-3", "AC"),
        (b"\xff\xfe", b"1", "", "WA"),
        (b"1\n2 3", b"1 2\n3\n", "by_lines", "WA"),
        (b"1  2\n\n3", b"1 2\n3\n", "by_lines", "AC"),
        (b"b a\n", b"a\nb\n", "any_order_of_tokens", "AC"),
        (b"b\na\n", b"a\nb\n", "any_order_of_lines", "AC"),
        (b"b a\n", b"a\nb\n", "any_order_of_lines", "WA"),
        (b"A\n", b"a\n", "case_sensitive any_order_of_lines", "WA"),
        (b"cab", b"a B c", "any_order_of_letters", "AC"),
        (b"caab", b"a B c", "any_order_of_letters", "WA"),
    ],
)
def test_an_output_is_compared_by_its_flags(output: bytes, answer: bytes, flags: str, expected: str) -> None:
    assert compare(output, answer, Comparison.from_flags(flags.split())).answer == expected


@pytest.mark.parametrize("flags", ["float_tolerance", "float_tolerance x", "float_tolerance -1", "sloppy"])
def test_a_wrong_flag_is_refused(flags: str) -> None:
    with pytest.raises(InvalidInput):
        Comparison.from_flags(flags.split())


def test_a_message_is_short_and_printable() -> None:
    checked = compare(b"\x1b[31m" + b"x" * 100_000, b"1", Comparison())

    assert checked.answer is ExpectedAnswer.WA
    assert len(checked.message) < 200
    assert checked.message.isprintable()
