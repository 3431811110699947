"""Where an output differs from the answer."""

from fencepost_judge._difference import LINE_MAX, LINES_BEFORE, LINES_MAX, difference


def test_blanks_at_the_ends_make_no_difference() -> None:
    assert difference("1 2\n3\n", "1 2  \r\n3\n\n\n") == []


def test_the_lines_from_shortly_before_the_first_that_differs() -> None:
    answer = "\n".join(map(str, range(100)))
    output = answer.replace("50", "x")

    found = difference(answer, output)

    assert (found[0].number, len(found)) == (51 - LINES_BEFORE, LINES_MAX)
    assert [(one.answer, one.output) for one in found if one.differs] == [("50", "x")]


def test_an_output_that_ends_early_or_goes_on_and_lines_without_end() -> None:
    short = difference("1\n2\n", "1\n")[-1]
    long = difference("1\n", "1\n" + "y" * 1000)[-1]

    assert (short.answer, short.output) == ("2", None)
    assert long.output is not None
    assert (long.answer, len(long.output)) == (None, LINE_MAX + 1)
