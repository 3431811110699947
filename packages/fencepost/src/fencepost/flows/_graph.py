"""The graph of a flow: immutable nodes, built fluently. A stream is a point in the graph where more steps
can follow.

flow = Flow("totals").source(RedisStreams("orders")).json().key_by(user).sum(amount).sink(PostgresUpsert(...))

Every method returns a new value and changes none. `sink` ends a branch and returns a `Flow`; `also` combines
several. `sink` checks the guarantee of the flow at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from operator import add
from typing import Any, Generic, Literal, Self, TypeVar, overload

import msgspec

from fencepost._durations import Duration, optional_seconds_of
from fencepost.flows import _keyed_steps as keyed_steps
from fencepost.flows import _steps as steps
from fencepost.flows import _window_steps as window_steps
from fencepost.flows._dead_letter_replay import with_rejected, with_replays
from fencepost.flows._dead_letters import DeadLetterSink
from fencepost.flows._errors import GraphRefused
from fencepost.flows._guarantee import EXACTLY_ONCE, Guarantee, require
from fencepost.flows._node import GraphNode
from fencepost.flows._record import Failure, WindowResult, WindowUpdate
from fencepost.flows._windows import Firing, Fixed, Interval, Joined, Session, Window
from fencepost.flows.sinks._rejecting import DeadLetters
from fencepost.flows.sinks._sink import Sink
from fencepost.flows.sources._source import Source

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")
K = TypeVar("K")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Flow:
    """A named graph. State and leases are stored under the name, so it must never change."""

    name: str
    guarantee: str = "exactly_once"
    sinks: tuple[GraphNode, ...] = ()
    migrations: Mapping[str, Callable[[int, Any], Any]] = field(default_factory=dict[str, Any])
    """By step name: a function from the version of the stored state and its pairs to pairs of the current
    version."""
    rename: Mapping[str, str] = field(default_factory=dict[str, str])
    """Stateful steps that were renamed, old name to new name: their state moves with them."""
    drop_state: Sequence[str] = ()
    """Stateful steps that were removed or changed their meaning: their state is deleted."""

    def __post_init__(self) -> None:
        Guarantee.named(self.guarantee)
        if not self.name or set(self.name) & set("/:{} "):
            raise GraphRefused(
                f"{self.name!r} is no name for a flow: it is empty, or has one of / : {{ }} or a space."
            )

    def source(self, source: Source, *, name: str | None = None) -> Stream[Any]:
        """Begin a stream with the records of a source."""
        return Stream(self, GraphNode("source", source=source, name=name or source.name))

    def also(self, *others: Flow) -> Flow:
        """Return the same flow with the branches of the others added."""
        for other in others:
            if other.name != self.name:
                raise GraphRefused(
                    f"{other.name} and {self.name} are two flows; the branches of one flow share its name."
                )
        sinks = [*self.sinks, *(sink for other in others for sink in other.sinks)]
        # Branches of one stream share the sinks that were added before they split.
        return replace(self, sinks=tuple(dict.fromkeys(sinks)))

    def nodes(self) -> list[GraphNode]:
        """Every node once, parents first."""
        return list(dict.fromkeys(node for sink in self.sinks for node in sink.ancestors()))

    @property
    def promised(self) -> Guarantee:
        """The guarantee that the graph keeps: the lowest of its sources and sinks."""
        kept = [node.source.promise.guarantee for node in self.nodes() if node.source is not None]
        kept += [node.sink.promise.guarantee for node in self.sinks if node.sink is not None]
        return min(kept, default=EXACTLY_ONCE)

    @classmethod
    def of_functions(
        cls,
        name: str,
        source: Source,
        *functions: Callable[..., Any],
        sink: Sink,
        guarantee: str = "exactly_once",
    ) -> Flow:
        """Build a flow from functions of one value: plain ones map, generators flat-map, async ones
        enrich."""
        stream: Stream[Any] = cls(name, guarantee).source(source)
        for function in functions:
            if iscoroutinefunction(function):
                stream = stream.enrich(function)
            elif isgeneratorfunction(function):
                stream = stream.flat_map(function)
            elif isasyncgenfunction(function):
                raise GraphRefused(
                    f"{function.__name__} is an async generator; return a list from an async function."
                )
            else:
                stream = stream.map(function)
        return stream.sink(sink)


class Stream(Generic[T]):
    """A stream of records to which steps can be added."""

    def __init__(self, flow: Flow, node: GraphNode) -> None:
        self._flow = flow
        self._node = node

    def map(self, function: Callable[[T], U]) -> Stream[U]:
        """Replace each value by what the function returns."""
        return Stream(self._flow, self._next("map", lambda: steps.Map(function), functions=(function,)))

    def filter(self, function: Callable[[T], bool]) -> Stream[T]:
        """Keep the values for which the function is true."""
        return Stream(self._flow, self._next("filter", lambda: steps.Filter(function), functions=(function,)))

    def flat_map(self, function: Callable[[T], Iterable[U]]) -> Stream[U]:
        """Replace each value by all that the function returns for it."""
        return Stream(
            self._flow, self._next("flat_map", lambda: steps.FlatMap(function), functions=(function,))
        )

    def json(self, kind: Any = Any) -> Stream[Any]:
        """Decode each value, bytes or text, as JSON; with a type, check and convert it.

        For an IdempotentRecord it decodes the value and keeps the id.
        """
        decode = msgspec.json.Decoder(kind).decode
        return Stream(self._flow, self._next("json", lambda: steps.ReadJson(decode)))

    def enrich(self, function: Callable[[T], Awaitable[U]], *, concurrency: int = 64) -> Stream[U]:
        """Await a function for each record, up to `concurrency` at once; the order is kept."""
        return Stream(
            self._flow,
            self._next("enrich", lambda: steps.Enrich(function, concurrency), functions=(function,)),
        )

    def branch(self, *conditions: Callable[[T], bool]) -> tuple[Stream[T], ...]:
        """Return one stream for each condition and one for records that meet none.

        A record goes to the first condition that it meets.
        """

        def chooses(wanted: int) -> Callable[[T], bool]:
            def first(value: T) -> bool:
                met = next((i for i, meets in enumerate(conditions) if meets(value)), len(conditions))
                return met == wanted

            return first

        # The index of a branch is part of the identity of its steps.
        streams = [self.filter(chooses(i)) for i in range(len(conditions) + 1)]
        mine = [
            (*conditions[i : i + 1], *(() if i < len(conditions) else conditions))
            for i in range(len(streams))
        ]
        return tuple(
            Stream(self._flow, replace(stream._node, functions=functions))
            for stream, functions in zip(streams, mine, strict=True)
        )

    def union(self, *others: Stream[T]) -> Stream[T]:
        """Merge streams. All of them are keyed, or none is."""
        nodes = (self._node, *(other._node for other in others))
        if len({node.is_behind("key_by") for node in nodes}) > 1:
            raise GraphRefused("A union of a keyed and an unkeyed stream has no order. Key both, or neither.")
        return Stream(self._flow, GraphNode("union", nodes))

    def event_time(
        self,
        moment: Callable[[T], float | datetime],
        *,
        allowed_lateness: float = 0,
        idle_after: Duration | None = None,
    ) -> Stream[T]:
        """Set when each record happened. A record that arrives after all its windows are closed goes to
        `.late`.

        Within one source partition, windows close `allowed_lateness` seconds behind the highest time seen.
        Without a window or a join after it, a record that lies behind that time is late.

        A partition in which nothing came for `idle_after` no longer holds back the windows of the others:
        its watermark follows theirs until a record comes, which may then be late.
        """
        idle_seconds = optional_seconds_of("idle_after", idle_after)
        if self._node.is_behind("key_by"):
            raise GraphRefused(
                "Event time stands before key_by: lateness is decided for each source partition, so that a "
                "replay decides as the first run did."
            )
        return Stream(
            self._flow,
            self._next(
                "event_time",
                lambda: steps.EventTime(moment, allowed_lateness),
                functions=(moment,),
                idle_seconds=idle_seconds,
            ),
        )

    def key_by(
        self, function: Callable[[T], K], *, groups: int | None = None, value: type[T] | None = None
    ) -> KeyedStream[K, T]:
        """Bring records of one key together. With `groups` they are spread over that many units of work.

        Records are sent there as plain data; `value` is the type that each is converted to on arrival.
        """
        if groups is not None and not 1 <= groups <= 4096:
            raise GraphRefused(f"groups is {groups}; allowed: from 1 to 4096.")
        keyed = self._next("key_by", lambda: steps.KeyBy(function), functions=(function,))
        node = replace(keyed, groups=groups, value=value)
        return KeyedStream(self._flow, node)

    @property
    def late(self) -> Stream[Any]:
        """Records that arrived after all their windows were closed, as `event_time` saw them."""
        clock = next((n for n in reversed(list(self._node.ancestors())) if n.kind == "event_time"), None)
        if clock is None:
            raise GraphRefused("Nothing is late without event_time before it.")
        return Stream(self._flow, GraphNode("late", (clock,), side="late"))

    @property
    def errors(self) -> Stream[Failure]:
        """Records that the last step could not process. Without this stream, such a record stops its task."""
        return Stream(self._flow, GraphNode("errors", (self._node,), side="errors"))

    def dead_letters(self, name: str, *, value: type[Any] | None = None) -> Self:
        """Store records that the last step cannot process, under a name; `fencepost flows replay` retries
        them.

        Records are stored as plain data; `value` is the type that each is converted to for the replay.
        """
        retried = with_replays(self._node, self._flow.name, name, value)
        failures: Stream[Failure] = Stream(self._flow, GraphNode("errors", (retried,), side="errors"))
        return type(self)(failures.sink(DeadLetterSink(self._flow.name, name)), retried)

    def sink(self, sink: Sink) -> Flow:
        """End the branch. Raises GuaranteeNotMet if the flow asks for a higher guarantee than the branch
        can keep."""
        node = self._next("sink", sink=sink)
        if isinstance(sink.on_reject, DeadLetters):
            node = with_rejected(node, self._flow.name, sink.on_reject)
        flow = replace(self._flow, sinks=(*self._flow.sinks, node))
        sources = [node.source for node in self._node.ancestors() if node.source is not None]
        promises = [(f"the source {source.name}", source.promise) for source in sources]
        promises.append((f"the sink {type(sink).__name__}", sink.promise))
        require(Guarantee.named(flow.guarantee), promises)
        # A failure is emitted when the record arrives: only the results of the step itself wait for the
        # commit.
        before = self._node.parents[0].parents if self._node.side == "errors" else (self._node,)
        if not sink.keyed and any(node.at_commit for last in before for node in last.ancestors()):
            raise GraphRefused(
                f"A fold that emits once per commit gives {type(sink).__name__} another number of records in "
                "every run. Use emit='each', a window, or a sink that replaces by key."
            )
        return flow

    def _next(self, kind: str, make: Callable[[], steps.Step] = steps.Pass, **more: Any) -> GraphNode:
        return GraphNode(kind, (self._node,), make, **more)


class KeyedStream(Stream[T], Generic[K, T]):
    """Records with a key; steps may keep state for each key."""

    def fold(
        self,
        initial: U,
        function: Callable[[U, T], U],
        *,
        emit: str = "commit",
        state: type[U] | None = None,
        name: str = "",
        version: int = 1,
    ) -> Stream[tuple[K, U]]:
        """Keep one running value per key, and emit (key, value): once per commit for each changed key, or
        with emit="each" for every record."""
        if emit not in ("commit", "each"):
            raise GraphRefused(f"emit is {emit!r}; allowed: 'commit' or 'each'.")
        each = emit == "each"
        return Stream(
            self._flow,
            self._keyed(
                "fold",
                lambda: keyed_steps.Fold(initial, function, each=each, kind=state),
                at_commit=not each,
                name=name,
                version=version,
                functions=(function,),
            ),
        )

    def reduce(
        self, function: Callable[[T, T], T], *, emit: str = "commit", name: str = ""
    ) -> Stream[tuple[K, T]]:
        """Combine the values of each key by two; emits the key with what there is so far."""

        def reducing(left: Any, right: T) -> Any:
            return right if left is None else function(left, right)

        nothing: Any = None
        return _known_by(
            self.fold(nothing, reducing, emit=emit, name=name), KeyedStream[Any, Any].reduce, function
        )

    def sum(
        self, amount: Callable[[T], Any], *, emit: str = "commit", name: str = ""
    ) -> Stream[tuple[K, Any]]:
        """Add up an amount of each key's values."""

        def add_amount(total: Any, value: T) -> Any:
            return total + amount(value)

        return self._unordered(
            self.fold(0, add_amount, emit=emit, name=name),
            lambda each: keyed_steps.Fold(0, add_amount, each=each, fold_batch=keyed_steps.summing(amount)),
            (KeyedStream[Any, Any].sum, amount),
        )

    def count(self, *, emit: str = "commit", name: str = "") -> Stream[tuple[K, int]]:
        """Count the values of each key."""

        def add_one(total: int, _: T) -> int:
            return total + 1

        return self._unordered(
            self.fold(0, add_one, emit=emit, name=name),
            lambda each: keyed_steps.Fold(0, add_one, each=each, fold_batch=keyed_steps.counting),
            (KeyedStream[Any, Any].count,),
        )

    def _unordered(
        self,
        folded: Stream[tuple[K, U]],
        make: Callable[[bool], steps.Step],
        functions: tuple[Callable[..., Any], ...],
    ) -> Stream[tuple[K, U]]:
        """A fold whose order matters only if each record emits; `functions` are what the user gave."""
        each = not folded._node.at_commit
        node = replace(folded._node, make=lambda: make(each), ordered=each, functions=functions)
        return Stream(self._flow, node)

    def stateful(
        self,
        function: Callable[[Any, T], tuple[Any, Iterable[U]]],
        *,
        ttl: Duration | None = None,
        state: type[Any] | None = None,
        name: str = "",
        version: int = 1,
    ) -> KeyedStream[K, U]:
        """`function(state, value)` returns the new state (None deletes the key's state) and what to emit.

        With `ttl`, the state of a key is deleted when that much event time has passed without a record.
        """
        ttl_seconds = optional_seconds_of("ttl", ttl)
        return KeyedStream(
            self._flow,
            self._keyed(
                "stateful",
                lambda: keyed_steps.StatefulMap(function, ttl_seconds, state),
                needs_time=ttl is not None,
                name=name,
                version=version,
                functions=(function,),
            ),
        )

    def process(
        self,
        process: Callable[[], keyed_steps.Process],
        *,
        state: type[Any] | None = None,
        name: str = "",
        version: int = 1,
    ) -> KeyedStream[K, Any]:
        """A user-defined step with state and timers; `process` makes one for each task."""
        return KeyedStream(
            self._flow,
            self._keyed(
                "process",
                lambda: keyed_steps.ProcessStep(process(), state),
                timers=True,
                needs_time=True,
                name=name,
                version=version,
                functions=(process,),
            ),
        )

    def dedup(
        self, identify: Callable[[T], Any], *, ttl: Duration | None = None, name: str = ""
    ) -> KeyedStream[K, T]:
        """Pass only the first record with an id, for each key; with `ttl`, the first in that time."""
        ttl_seconds = optional_seconds_of("ttl", ttl)
        return KeyedStream(
            self._flow,
            self._keyed(
                "dedup",
                lambda: keyed_steps.Dedup(identify, ttl_seconds),
                needs_time=ttl is not None,
                name=name,
                functions=(identify,),
            ),
        )

    def lookup(
        self,
        table: KeyedStream[K, U],
        join: Callable[[T, U | None], V],
        *,
        state: type[U] | None = None,
        name: str = "",
    ) -> KeyedStream[K, V]:
        """Join each record with the newest record of its key in another stream."""
        node = self._keyed("lookup", lambda: keyed_steps.Lookup(join, state), name=name, functions=(join,))
        return KeyedStream(self._flow, replace(node, parents=(self._node, table._node)))

    @overload
    def join(
        self, other: KeyedStream[K, U], join: Callable[[T, U], V], *, window: Joined, name: str = ""
    ) -> KeyedStream[K, V]: ...
    @overload
    def join(
        self,
        other: KeyedStream[K, U],
        join: Callable[[T, U], V],
        *,
        window: Joined,
        how: Literal["inner"],
        name: str = "",
    ) -> KeyedStream[K, V]: ...
    @overload
    def join(
        self,
        other: KeyedStream[K, U],
        join: Callable[[T, U | None], V],
        *,
        window: Joined,
        how: Literal["left"],
        name: str = "",
    ) -> KeyedStream[K, V]: ...
    @overload
    def join(
        self,
        other: KeyedStream[K, U],
        join: Callable[[T | None, U], V],
        *,
        window: Joined,
        how: Literal["right"],
        name: str = "",
    ) -> KeyedStream[K, V]: ...
    @overload
    def join(
        self,
        other: KeyedStream[K, U],
        join: Callable[[T | None, U | None], V],
        *,
        window: Joined,
        how: window_steps.How,
        name: str = "",
    ) -> KeyedStream[K, V]: ...
    def join(
        self,
        other: KeyedStream[K, U],
        join: Callable[..., V],
        *,
        window: Joined,
        how: window_steps.How = "inner",
        name: str = "",
    ) -> KeyedStream[K, V]:
        """Emit pairs of records of one key that lie in one window, or within an interval of each other.

        `how` is inner, left, right or outer: whether a record without a partner comes too, once none can
        come for it. The function gets None for what is missing.
        """
        if how not in window_steps.HOW:
            raise GraphRefused(f"how is {how!r}; allowed: {', '.join(window_steps.HOW)}.")

        def make() -> steps.Step:
            if isinstance(window, Interval):
                return window_steps.IntervalJoin(window, join, how)
            return window_steps.WindowJoin(window, join, how)

        node = self._keyed(
            "join",
            make,
            needs_time=True,
            timers=isinstance(window, Interval),
            ordered=False,
            window=window,
            variant="" if how == "inner" else how,
            name=name,
            functions=(join,),
        )
        return KeyedStream(self._flow, replace(node, parents=(self._node, other._node)))

    @overload
    def window(self, window: Window) -> Windowed[K, T, WindowResult]: ...
    @overload
    def window(self, window: Window, *, by: Literal["arrival"]) -> Windowed[K, T, WindowResult]: ...
    @overload
    def window(
        self, window: Fixed, *, early_every: Duration, late_for: Duration | None = None
    ) -> Windowed[K, T, WindowUpdate]: ...
    @overload
    def window(
        self, window: Fixed, *, early_every: Duration | None = None, late_for: Duration
    ) -> Windowed[K, T, WindowUpdate]: ...
    def window(
        self,
        window: Window,
        *,
        by: Literal["event", "arrival"] = "event",
        early_every: Duration | None = None,
        late_for: Duration | None = None,
    ) -> Windowed[K, T, Any]:
        """Group each key's values by windows of their time.

        With `early_every`, a window that is open emits what it holds, as often in event time, if a record
        has come since. With `late_for`, it takes records for that long after its end, and emits for each.
        Both emit a `WindowUpdate`, of which the newest is valid: a sink that replaces by key keeps that.

        `by="arrival"` gathers records by when they are processed. Each is in one window, once, but in
        which depends on the run; in event time it depends on the records alone.
        """
        if by not in ("event", "arrival"):
            raise GraphRefused(f"by is {by!r}; allowed: 'event' or 'arrival'.")
        if by == "arrival":
            if early_every is not None or late_for is not None:
                raise GraphRefused(
                    "A window by arrival has no late records, and early_every needs event time."
                )
            return Windowed(self, window, by_arrival=True)
        if early_every is None and late_for is None:
            return Windowed(self, window)
        if isinstance(window, Session):
            raise GraphRefused(
                "early_every and late_for are for windows that lie fast: a session may still grow, and "
                "join another that was emitted. Use Tumbling, Sliding or Calendar, or process(...)."
            )
        early, late = (
            optional_seconds_of("early_every", early_every),
            optional_seconds_of("late_for", late_for),
        )
        return Windowed(self, window, Firing(window, early, late or 0.0))

    def _keyed(self, kind: str, make: Callable[[], steps.Step], **more: Any) -> GraphNode:
        return self._next(kind, make, **{"ordered": True, "needs_key": True, **more})


class Windowed(Generic[K, T, R]):
    """Keyed records by window; an aggregate turns them into a stream again, one result per window and key, or
    with early and late firings several updates."""

    def __init__(
        self,
        keyed: KeyedStream[K, T],
        window: Window,
        firing: Firing | None = None,
        *,
        by_arrival: bool = False,
    ) -> None:
        self._stream = keyed
        self._window = window
        self._firing = firing
        self._by_arrival = by_arrival

    def fold(
        self,
        initial: Callable[[], U],
        function: Callable[[U, T], U],
        *,
        state: type[U] | None = None,
        merge: Callable[[U, U], U] | None = None,
        name: str = "",
        version: int = 1,
        ordered: bool = True,
    ) -> Stream[R]:
        """`initial()` begins each window; `ordered=False` declares that the order of the records does not
        matter.

        `merge` combines the values of two sessions that a record joins, and declares the same: a session is
        then one value. Without it, a session keeps its records until it ends.
        """
        window, firing, by_arrival = self._window, self._firing, self._by_arrival

        def make() -> steps.Step:
            return window_steps.ByArrival(made()) if by_arrival else made()

        def made() -> steps.Step:
            if isinstance(window, Session):
                return window_steps.SessionFold(window, initial, function, merge, state)
            if firing is not None:
                return window_steps.FiringWindow(firing, initial, function, state)
            return window_steps.WindowFold(window, initial, function, state)

        node = self._stream._keyed(  # pyright: ignore[reportPrivateUsage]
            "window",
            make,
            needs_time=not by_arrival,
            by_arrival=by_arrival,
            variant="by arrival" if by_arrival else "",
            name=name,
            version=version,
            ordered=ordered and merge is None,
            timers=firing is not None,
            window=firing or window,
            functions=(function,),
        )
        return Stream(self._stream._flow, node)  # pyright: ignore[reportPrivateUsage]

    def count(self, *, name: str = "") -> Stream[R]:
        """Count the values of each window."""
        counts = self.fold(lambda: 0, lambda total, _: total + 1, merge=add, name=name)
        return _known_by(counts, Windowed[Any, Any, Any].count)

    def sum(self, amount: Callable[[T], Any], *, name: str = "") -> Stream[R]:
        """Add up an amount of each window's values."""
        sums = self.fold(lambda: 0, lambda total, value: total + amount(value), merge=add, name=name)
        return _known_by(sums, Windowed[Any, Any, Any].sum, amount)

    def max(self, amount: Callable[[T], Any], *, name: str = "") -> Stream[R]:
        """The value of each window that has the largest amount."""
        return _known_by(
            self._best(amount, lambda new, old: new > old, name), Windowed[Any, Any, Any].max, amount
        )

    def min(self, amount: Callable[[T], Any], *, name: str = "") -> Stream[R]:
        """The value of each window that has the smallest amount."""
        return _known_by(
            self._best(amount, lambda new, old: new < old, name), Windowed[Any, Any, Any].min, amount
        )

    def reduce(self, function: Callable[[T, T], T], *, name: str = "") -> Stream[R]:
        """Combine the values of each window by two."""
        reduced = self.fold(
            _nothing, lambda left, right: right if left is None else function(left, right), name=name
        )
        return _known_by(reduced, Windowed[Any, Any, Any].reduce, function)

    def collect(self, *, name: str = "") -> Stream[R]:
        """All values of each window, as a list."""
        return _known_by(
            self.fold(_no_values, lambda values, value: [*values, value], name=name),
            Windowed[Any, Any, Any].collect,
        )

    def _best(self, amount: Callable[[T], Any], beats: Callable[[Any, Any], bool], name: str) -> Stream[R]:
        def better(best: Any, value: T) -> Any:
            new = amount(value)
            return new if best is None or beats(new, best) else best

        return self.fold(_nothing, better, merge=lambda one, two: two if beats(two, one) else one, name=name)


def _known_by(stream: Stream[U], *functions: Callable[..., Any]) -> Stream[U]:
    """Identify the step by the functions that the user gave, not by the wrappers made from them."""
    node = stream._node  # pyright: ignore[reportPrivateUsage]
    return Stream(stream._flow, replace(node, functions=functions))  # pyright: ignore[reportPrivateUsage]


def _nothing() -> Any:
    return None


def _no_values() -> list[Any]:
    return []
