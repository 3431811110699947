"""What a node remembers: for a short time, and only what a plan may be made from."""

from fencepost_players._plan import Needs
from fencepost_players._snapshot import PlayerSnapshot
from fencepost_players._snapshot_cache import CachedSnapshot, SnapshotCache

BOX = ("item", "box")
SEEN = PlayerSnapshot("ann", 3, {BOX: {"stackable": True}})


def test_a_value_is_remembered_for_a_while_and_the_oldest_is_forgotten_first() -> None:
    now = [0.0]
    memory: CachedSnapshot[str, int] = CachedSnapshot(2, 1.0, lambda: now[0])
    memory.put("a", 1)
    memory.put("b", 2)
    memory.put("c", 3)
    assert (memory.get("a"), memory.get("b"), memory.get("c")) == (None, 2, 3)
    now[0] = 1.5
    assert memory.get("c") is None


def test_a_version_is_known_only_from_an_execution_of_this_node() -> None:
    known = SnapshotCache()
    known.saw(SEEN)
    assert known.snapshot("ann", Needs(catalog=(BOX,))) is None
    known.raised("ann", 4)
    assert known.snapshot("ann", Needs(catalog=(BOX,))) == PlayerSnapshot("ann", 4, SEEN.catalog)


def test_what_depends_on_the_players_progress_is_always_looked_at() -> None:
    known = SnapshotCache()
    known.saw(SEEN)
    known.raised("ann", 4)
    assert known.snapshot("ann", Needs(catalog=(BOX,), heroes=("knight",))) is None
    assert known.snapshot("ann", Needs(pieces=("x",))) is None
    assert known.snapshot("ann", Needs(catalog=(("item", "other"),))) is None
