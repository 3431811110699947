"""The names of crash points and announcements: literals, one place each, documented."""

import re
from collections import Counter
from pathlib import Path

from fencepost.testing import Point, points_in

ROOT = Path(__file__).parents[3]
SOURCE = """crash_point("a.b")
announce("c.up" if up else "c.down")
announce(f"{name}.ticked")
crash_point(name)
self.announce("another matter")
"""
REFERENCE = ROOT / "docs" / "reference" / "testing.md"


def ours() -> list[Point]:
    return list(points_in(ROOT / "packages"))


def test_points_are_found_by_their_calls(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    assert list(points_in(tmp_path)) == [
        Point("crash_point", "a.b", Path("a.py"), 1),
        Point("announce", "c.up", Path("a.py"), 2),
        Point("announce", "c.down", Path("a.py"), 2),
        Point("announce", "*.ticked", Path("a.py"), 3),
        Point("crash_point", None, Path("a.py"), 4),
    ]


def test_every_name_can_be_read_from_the_source() -> None:
    assert [point for point in ours() if point.name is None] == []


def test_the_name_of_a_crash_point_is_a_literal() -> None:
    assert [point for point in ours() if point.hook == "crash_point" and "*" in (point.name or "*")] == []


def test_every_name_stands_at_one_place() -> None:
    names = Counter((point.hook, point.name) for point in ours())
    assert [name for name, places in names.items() if places > 1] == []


def test_the_reference_lists_every_name_and_no_other() -> None:
    listed = set(re.findall(r"^\| `([\w*]+\.[\w.*]+)` \|", REFERENCE.read_text(), re.MULTILINE))
    used = {str(point.name) for point in ours()}
    assert used - listed == set(), (
        "each needs a row in docs/reference/testing.md that says where or when it is"
    )
    assert listed - used == set(), "these rows of docs/reference/testing.md have no place in the source"
