"""Where the commands of a Redis Cluster go. Decides, and does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from redis.crc import key_slot
from redis.exceptions import AskError, ClusterDownError, MovedError, ResponseError, TryAgainError
from redis.exceptions import ConnectionError as RedisConnectionError

Address = tuple[str, int]
REDIRECTIONS = (MovedError, AskError, TryAgainError, ClusterDownError)
STEPS_MAX = 100
STEPS_AT_ONCE = 4
PAUSE_SECONDS = 0.05
EVERYWHERE = frozenset({"SCRIPT LOAD", "SCRIPT EXISTS", "SCRIPT FLUSH", "FLUSHALL", "FLUSHDB"})
"""Each primary has its own scripts and its own data."""
ANYWHERE = frozenset(
    {"PING", "INFO", "CONFIG", "CLIENT", "COMMAND", "CLUSTER", "TIME", "ACL", "DBSIZE", "ROLE", "SCRIPT"}
)
KEY_AFTER_COUNT = frozenset({"EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO"})


def slot_of(key: str | bytes) -> int:
    """The slot of a key: of its part in braces, if it has one."""
    return key_slot(key if isinstance(key, bytes) else key.encode())


def slot_of_command(command: Sequence[Any]) -> int | None:
    """The slot of the first key; None for a command without keys. Whether all keys have one slot is checked
    by the server."""
    name = str(command[0]).upper().partition(" ")[0]
    if name in ANYWHERE:
        return None
    if name in KEY_AFTER_COUNT:
        return slot_of(command[3]) if int(command[2]) else None
    if name in ("XREAD", "XREADGROUP"):
        words = [word.upper() if isinstance(word, str) else word for word in command]
        place = next(at for at, word in enumerate(words) if word in ("STREAMS", b"STREAMS"))
        return slot_of(command[place + 1])
    return slot_of(command[1]) if len(command) > 1 else None


def by_slot(keys: Iterable[str]) -> list[list[str]]:
    """Keys that one command may name together."""
    slots: dict[int, list[str]] = {}
    for key in keys:
        slots.setdefault(slot_of(key), []).append(key)
    return list(slots.values())


def combined(command: str, answers: Sequence[Any]) -> Any:
    """One answer of all primaries: a script exists where every one has it."""
    if command == "SCRIPT EXISTS":
        return [all(of_one) for of_one in zip(*answers, strict=True)]
    return answers[0]


class SlotMap:
    """The primary of each slot, as far as it was told."""

    def __init__(self, seeds: Sequence[Address]) -> None:
        self._seeds = tuple(seeds)
        self._slots: dict[int, Address] = {}
        self._nodes: tuple[Address, ...] = ()
        self._is_doubtful = True

    @property
    def everyone(self) -> list[Address]:
        """The nodes that may know the map: those of the newest one, then those of the setting."""
        return list(dict.fromkeys([*self._nodes, *self._seeds]))

    @property
    def primaries(self) -> list[Address]:
        return list(dict.fromkeys(self._slots.values()))

    def primary_of(self, slot: int | None) -> Address:
        """For a command without keys any primary. Raises RedisConnectionError for a slot that none has."""
        primary = next(iter(self._slots.values()), None) if slot is None else self._slots.get(slot)
        if primary is None:
            self.doubt()
            raise RedisConnectionError(f"No node of the cluster serves the slot {slot}.")
        return primary

    def must_be_read(self) -> bool:
        """Nothing was read yet, or a node did not answer: ask a node for the whole map before it is used."""
        return self._is_doubtful

    def doubt(self) -> None:
        self._is_doubtful = True

    def learn(self, answer: Sequence[Any], asked: Address) -> bool:
        """The answer of CLUSTER SLOTS; False for that of a node which knows no slots."""
        slots: dict[int, Address] = {}
        nodes: list[Address] = []
        for first, last, *members in answer:
            places = [_address(member, asked) for member in members]
            nodes += places
            slots.update(dict.fromkeys(range(int(first), int(last) + 1), places[0]))
        self._slots, self._nodes = slots, tuple(nodes)
        self._is_doubtful = not slots
        return bool(slots)

    def move(self, slot: int, primary: Address) -> None:
        self._slots[slot] = primary
        self._nodes = tuple(dict.fromkeys([*self._nodes, primary]))


@dataclass
class Route:
    """The way of one command: to the primary of its slot, and where the answers send it from there."""

    slots: SlotMap
    slot: int | None
    is_asking: bool = False
    """The slot is on its way to `target`, which serves it to this command only, behind ASKING."""
    _asked: Address | None = None
    _steps: int = 0

    @property
    def target(self) -> Address:
        return self._asked or self.slots.primary_of(self.slot)

    def follow(self, error: ResponseError) -> float:
        """The seconds to wait before the next try. Raises RedisConnectionError if there is no use in one."""
        asked, self._steps = self.target, self._steps + 1
        self.is_asking, self._asked = False, None
        if isinstance(error, ClusterDownError):
            self.slots.doubt()
            raise RedisConnectionError(f"The cluster does not serve the slot {self.slot}: {error}") from error
        if self._steps > STEPS_MAX:
            self.slots.doubt()
            raise RedisConnectionError(f"The slot {self.slot} was still moving: {error}") from error
        if isinstance(error, MovedError):
            self.slots.move(int(error.slot_id), _told(error, asked))
        elif isinstance(error, AskError):
            self.is_asking, self._asked = True, _told(error, asked)
        elif isinstance(error, TryAgainError):
            # Some keys of the command have moved, and some not.
            return PAUSE_SECONDS
        else:
            raise error
        return 0.0 if self._steps < STEPS_AT_ONCE else PAUSE_SECONDS


def _told(error: AskError, asked: Address) -> Address:
    """Without a host it is that of the node that answered."""
    told = cast("Any", error)
    return str(told.host or asked[0]), int(told.port)


def _address(member: Sequence[Any], asked: Address) -> Address:
    host, port = member[0], int(member[1])
    if isinstance(host, bytes):
        host = host.decode()
    return (host or asked[0], port)
