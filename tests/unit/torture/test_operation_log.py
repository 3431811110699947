"""What was begun and not answered is unknown."""

from pathlib import Path

from fencepost_torture._operation_log import OperationLog


def test_an_operation_without_an_answer_is_unknown(tmp_path: Path) -> None:
    ours, theirs = OperationLog(tmp_path / "file", "a"), OperationLog(tmp_path / "file", "b")
    first = ours.begin("write", "printer", token=1)
    theirs.begin("write", "printer", token=2)
    ours.end(first, 7)

    known, unknown = ours.operations()

    assert (known.answer, known.question, known.is_unknown) == (7, {"token": 1}, False)
    assert (unknown.question, unknown.is_unknown) == ({"token": 2}, True)
    assert known.begun <= unknown.begun <= known.ended
    ours.close()
    theirs.close()


def test_a_caller_that_is_killed_while_it_writes_has_written_nothing(tmp_path: Path) -> None:
    """The kernel may end a write where a page of the file ends; the next one begins right behind it."""
    file = tmp_path / "file"
    victim, others = OperationLog(file, "a"), OperationLog(file, "b")
    answered = victim.begin("write", "printer", token=1)
    whole = file.read_bytes()
    for length in range(2, len(whole)):
        with file.open("ab") as torn:
            torn.write(whole.replace(b"a.1", b"a.9")[:-length])
        others.end(others.begin("write", "printer", token=length), "done")

    found = others.operations()

    assert [operation.answer for operation in found] == [None, *["done"] * (len(whole) - 2)]
    victim.end(answered, 7)
    assert others.operations()[0].answer == 7
    victim.close()
    others.close()
