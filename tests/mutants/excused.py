"""What the mutants cannot show, each with its reason."""

from pathlib import Path


def _read(text: str) -> dict[str, str]:
    """A name, and a reason that is indented below it; whatever comes before the first is an introduction."""
    lines = text.splitlines()[2:]
    return {name: reason.strip() for name, reason in zip(lines[::2], lines[1::2], strict=True)}


EXCUSED = _read(Path(__file__).with_name("excused.txt").read_text())

# RAISEs that the quick tests do not reach: the beginning of their message, and who does.
REACHED_ELSEWHERE = {
    "raise exception 'state has % bytes": "a state of 256 MB: kernel/test_checkpoint.py with --full",
}
