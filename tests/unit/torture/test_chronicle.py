"""What was begun and not answered is unknown."""

from pathlib import Path

from fencepost.torture.chronicle import Chronicle


def test_an_operation_without_an_answer_is_unknown(tmp_path: Path) -> None:
    ours, theirs = Chronicle(tmp_path / "file", "a"), Chronicle(tmp_path / "file", "b")
    first = ours.begin("write", "printer", token=1)
    theirs.begin("write", "printer", token=2)
    ours.end(first, 7)

    known, unknown = ours.operations()

    assert (known.answer, known.question, known.is_unknown) == (7, {"token": 1}, False)
    assert (unknown.question, unknown.is_unknown) == ({"token": 2}, True)
    assert known.begun <= unknown.begun <= known.ended
    ours.close()
    theirs.close()
