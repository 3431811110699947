"""One commit of a task, and recovery of an unfinished one.

With only transactional sinks, one transaction holds the fence, the state, the frontier and the sinks' rows.

With other sinks the checkpoint becomes durable first and they follow:

    begin -> checkpoint begun -> prepare -> checkpoint stored (with handles and staged values, and the rows of
    transactional sinks) -> finish -> checkpoint flagged -> acknowledge

A crash before `stored` leaves a begun checkpoint: recovery cancels its handles, and the records are read
again. A crash after it leaves a durable one: recovery completes it regardless of its flag. The next
checkpoint is not begun before that is done, so there is never more than one to complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.crashpoints import crash_point
from fencepost.errors import NotFound, Refusal
from fencepost.flows import _flow_store as flow_store
from fencepost.flows._bounded_client import BoundedClient
from fencepost.flows._dead_letters import bury_rejected, preview
from fencepost.flows._errors import SinkRejected, StartRefused, StateTooLarge
from fencepost.flows._failing import blame, within
from fencepost.flows._flow_store import StoredCheckpoint
from fencepost.flows._frontier import Frontier
from fencepost.flows._late_records import late_samples
from fencepost.flows._parts import INLINE_BYTES_MAX, Part, checked, cut
from fencepost.flows._plan import KeyedStage
from fencepost.flows._state import StateCodec, decode, encode
from fencepost.flows._steps import Batch
from fencepost.flows.sinks._rejecting import DeadLetters, Rejection
from fencepost.flows.sinks._sink import CheckpointId, Sink
from fencepost.kernel import _checkpoint as checkpoint
from fencepost.kernel._checkpoint import Checkpoint
from fencepost.kernel.lease import Lease
from fencepost.logs import get_logger

_log = get_logger(__name__)
Rejected = list[tuple[Sink, Sequence[Rejection]]]
STATE_BYTES_MAX = 256 * 1024 * 1024
"""What `checkpoint_store` takes. A larger state is cut into parts."""
WHOLE_BYTES_MIN = 1_000_000
CHANGE_BYTES = 10_000
"""What a restore pays for a change besides its bytes: a small state is written whole after 100 changes."""


PRUNE_COMMITS = 20
"""How many commits of a state on disk lie between two looks for what they have left behind."""
NO_STATE = encode(None)


@dataclass(frozen=True, slots=True)
class StoredState:
    """What a commit stores of a task: a document, or the parts that it is cut into; or a document, and the
    parts that it says the place of its segments in. `since` is the first checkpoint that a restore reads;
    None for this one."""

    state: bytes | None
    whole: bool
    parts: Sequence[Part] = ()
    rolls: bool = False
    """Whether it stores some buckets whole, so that older checkpoints become superfluous."""
    since: int | None = None

    @property
    def size(self) -> int:
        return len(self.state or b"") + sum(len(part.content) for part in self.parts)


@dataclass
class Sizes:
    """Decides when to write the whole state again: when to restore the changes since then costs as much as
    it. So what is written in the long run is twice what changes, however large the state is."""

    whole: int = 0
    changes: int = 0
    count: int = 0
    since: int | None = None
    """The number of the whole state."""

    was_spilled: bool = False
    """Whether the checkpoint before is of a task that kept its state on disk: its changes begin with no whole
    state."""

    @property
    def wants_whole(self) -> bool:
        return self.was_spilled or self.changes + self.count * CHANGE_BYTES >= max(
            self.whole, WHOLE_BYTES_MIN
        )


class Committer:
    """The checkpoints of one task under one lease, in one edition of its flow."""

    def __init__(
        self, fp: BoundedClient, lease: Lease, sinks: Sequence[Sink], keep: int, edition: int
    ) -> None:
        self._fp = fp
        self._resource = lease.resource
        self._token = lease.token
        self._edition = edition
        self._sinks = sinks
        self._names = names_of(lease.resource, sinks)
        self._keep = keep
        self._durable: int | None = None
        """The newest durable checkpoint."""
        self._number = 0
        """The highest number that was ever begun."""
        self._expected: Any = None
        self._sizes = Sizes()
        self._unpruned = 0
        self.rejected = 0
        """How many values sinks have rejected and dead letters hold."""
        self._late: Batch = []

    @property
    def resource(self) -> str:
        return self._resource

    @property
    def follows(self) -> bool:
        """Whether a sink takes its effects after the transaction of a commit."""
        return any(sink.staged or sink.two_phase for sink in self._sinks)

    @property
    def state_bytes(self) -> int:
        return self._sizes.whole + self._sizes.changes

    async def restore(self, body: KeyedStage) -> Frontier:
        """Load the newest durable checkpoint into the keyed stage, and finish or cancel what was left
        open."""
        found = await self._fp.run(flow_store.restore_task(self._resource, self._token))
        durable = [each for each in found if each.durable]
        await self._cancel([each for each in found if not each.durable])
        stored = decode(await self._content(durable[-1])) if durable else StateCodec()
        lacking = await self._lacking(durable, stored.previous)
        if lacking is None:
            return await self.restore(body)
        for each in durable:
            document = stored.body if each is durable[-1] else decode(await self._content(each)).body
            if document is not None:
                await body.apply(document, each.number, each.parts)
        await body.complete(self._part)
        body.clean()
        self._number = await self._fp.run(flow_store.number(self._resource))
        if not durable:
            return Frontier()
        newest = durable[-1]
        self._durable, self._expected = newest.number, newest.frontier
        self._sizes = Sizes(
            durable[0].state_bytes,
            sum(each.state_bytes for each in durable[1:]),
            len(durable) - 1,
            durable[0].number,
            was_spilled=body.was_spilled,
        )
        await self._finish(newest, stored.staged, lacking)
        for sink, name in zip(self._sinks, self._names, strict=True):
            with within(type(sink).__name__):
                await sink.restored(name, newest.number)
        return Frontier.from_json(newest.frontier)

    async def commit(
        self,
        body: KeyedStage,
        outputs: Sequence[Sequence[Any]],
        frontier: Frontier,
        late: Batch | None = None,
    ) -> int:
        """Make the state, the frontier and the outputs durable; returns how many bytes of state it wrote.
        Late records are counted in the same commit."""
        self._late = late or []
        if self.follows:
            return await self._commit_in_phases(body, outputs, frontier)
        stored = self._state(body, None)
        target = frontier.as_json()
        async with self._fp.transaction() as tx:
            crash_point("flows.commit.before_fence")
            await self._put_parts(tx, stored)
            number = await tx.run(
                flow_store.commit(
                    self._resource,
                    self._token,
                    expected=self._expected,
                    frontier=target,
                    state=stored.state,
                    whole=stored.whole,
                    edition=self._edition,
                )
            )
            await self._name_parts(tx, number, stored)
            crash_point("flows.commit.after_fence")
            await self._write(tx, number, outputs)
            crash_point("flows.commit.before_commit")
        crash_point("flows.commit.after_commit")
        self._settled(body, number, target, stored)
        await self._prune(stored)
        return stored.size

    async def _commit_in_phases(
        self, body: KeyedStage, outputs: Sequence[Sequence[Any]], frontier: Frontier
    ) -> int:
        number = self._number + 1
        idents = self._idents(number, frontier)
        crash_point("flows.commit.before_begin")
        handles: list[Any] = []
        for sink, ident in zip(self._sinks, idents, strict=True):
            with within(type(sink).__name__):
                handles.append(await sink.begin(ident))
        crash_point("flows.commit.after_begin")
        begun = await self._fp.run(checkpoint.begin(self._resource, self._token, handles=handles))
        self._number = begun
        assert begun == number, (
            f"{self._resource}#{number} was expected, but #{begun} was begun: there is another writer"
        )
        try:
            target, stored = await self._store(idents, handles, body, outputs, frontier)
        except Refusal:
            # The lease is lost and the checkpoint never became durable: no other task may know what was
            # prepared here.
            for sink, ident, handle in zip(self._sinks, idents, handles, strict=True):
                await sink.cancel(ident, handle)
            raise
        crash_point("flows.commit.after_store")
        self._settled(body, number, target, stored)
        rejected: Rejected = []
        for place, sink in enumerate(self._sinks):
            if place > 0:
                crash_point("flows.commit.between_finishes")
            with within(type(sink).__name__):
                found = await sink.finish(idents[place], handles[place], outputs[place])
            rejected.append((sink, found or ()))
        crash_point("flows.commit.before_flag")
        await self._flag(number, rejected)
        crash_point("flows.commit.after_flag")
        await self._prune(stored)
        return stored.size

    async def _store(
        self,
        idents: Sequence[CheckpointId],
        handles: list[Any],
        body: KeyedStage,
        outputs: Sequence[Sequence[Any]],
        frontier: Frontier,
    ) -> tuple[Any, StoredState]:
        """Prepare the sinks and make the checkpoint durable; returns the frontier and what was stored."""
        crash_point("flows.commit.before_invoke")
        rejected: Rejected = []
        for place, sink in enumerate(self._sinks):
            with within(type(sink).__name__):
                handles[place], rejections = await sink.prepare(idents[place], handles[place], outputs[place])
            rejected.append((sink, rejections))
        choose(self._resource, rejected)
        crash_point("flows.commit.after_pre_commit")
        staged = {place: outputs[place] for place, sink in enumerate(self._sinks) if sink.staged}
        stored = self._state(body, {"staged": staged, "previous": self._durable})
        target = frontier.as_json()
        number = idents[0].number
        async with self._fp.transaction() as tx:
            await self._put_parts(tx, stored)
            await tx.run(
                flow_store.store(
                    self._resource,
                    self._token,
                    number,
                    expected=self._expected,
                    frontier=target,
                    state=stored.state,
                    handles=handles,
                    whole=stored.whole,
                    edition=self._edition,
                )
            )
            await self._name_parts(tx, number, stored)
            await self._write(tx, number, outputs)
            await self._bury(tx, rejected)
            crash_point("flows.commit.before_store")
        return target, stored

    async def _write(self, tx: Any, number: int, outputs: Sequence[Sequence[Any]]) -> None:
        if self._late:
            count, samples = len(self._late), late_samples(self._late)
            await tx.run(flow_store.count_late(self._resource, self._token, count, samples))
        ident = CheckpointId(self._resource, self._token, number)
        rejected: Rejected = []
        for sink, values in zip(self._sinks, outputs, strict=True):
            if values:
                with within(type(sink).__name__):
                    rejected.append((sink, await sink.write(tx, ident, values) or ()))
        await self._bury(tx, rejected)

    async def _flag(self, number: int, rejected: Rejected) -> None:
        """Flag the checkpoint and store the rejected values in one transaction: the sinks have taken all
        others."""
        flag = checkpoint.commit(self._resource, self._token, number)
        if not any(rejections for _, rejections in rejected):
            await self._fp.run(flag)
            return
        async with self._fp.transaction() as tx:
            await self._bury(tx, rejected)
            await tx.run(flag)

    async def _bury(self, tx: Any, rejected: Rejected) -> None:
        """Store the rejected values within the transaction that skips them."""
        for name, rejections in choose(self._resource, rejected):
            flow = self._resource.removeprefix("flow:").partition("/")[0]
            await tx.run(bury_rejected(flow, name, self._resource, self._token, rejections))
            self.rejected += len(rejections)
            _log.warning(
                "flow_values_rejected",
                resource=self._resource,
                dead_letters=name,
                count=len(rejections),
                first=rejections[0].error,
            )

    async def _put_parts(self, tx: Any, stored: StoredState) -> None:
        for part in stored.parts:
            await tx.run(flow_store.put_part(self._resource, self._token, part))
            crash_point("flows.commit.between_parts")

    async def _name_parts(self, tx: Any, number: int, stored: StoredState) -> None:
        if stored.parts or stored.rolls:
            hashes = [part.hash for part in stored.parts]
            await tx.run(flow_store.name_parts(self._resource, self._token, number, stored.since, hashes))

    def _state(self, body: KeyedStage, more: dict[str, Any] | None) -> StoredState:
        """What to store. A keyed stage without state stores none."""
        if not body.has_state:
            return StoredState(None if more is None else encode(None, **more), whole=True)
        if body.spill is not None:
            document, parts = body.spilled(body.spill)
            whole = self._durable is None
            state = self._checked(encode(document, **(more or {})))
            return StoredState(state, whole, parts, rolls=True, since=body.spill.since)
        whole = self._durable is None or self._sizes.wants_whole
        state = encode(body.whole() if whole else body.changed(), **(more or {}))
        if len(state) <= INLINE_BYTES_MAX:
            return StoredState(state, whole)
        # A change begins where the changes before it do.
        since = None if whole else self._sizes.since
        return StoredState(None, whole, cut(state), since=since)

    def _checked(self, state: bytes) -> bytes:
        if len(state) > STATE_BYTES_MAX:
            raise StateTooLarge(
                f"What {self._resource} stores beside its state takes {len(state) / 1e6:.0f} MB: values of "
                f"sinks and records that wait. A commit stores at most {STATE_BYTES_MAX / 1e6:.0f} MB of it. "
                "The task stops before it, and loses nothing. Commit more often (FLOW_CHECKPOINT_RECORDS)."
            )
        return state

    async def _content(self, stored: StoredCheckpoint) -> bytes:
        """The document of a checkpoint, of which all may lie in its parts."""
        if stored.state is not None:
            return stored.state
        parts = [checked(await self._part(digest), digest) for digest in stored.parts]
        return b"".join(parts) if parts else NO_STATE

    async def _part(self, digest: bytes) -> bytes | None:
        return await self._fp.run(flow_store.part(self._resource, digest))

    def _settled(self, body: KeyedStage, number: int, frontier: Any, stored: StoredState) -> None:
        body.clean()
        if body.spill is not None:
            body.spill.committed(number)
        self._durable = number
        self._number = max(self._number, number)
        self._expected = frontier
        if stored.whole:
            self._sizes = Sizes(whole=stored.size, since=number)
        else:
            self._sizes.changes += stored.size
            self._sizes.count += 1

    async def _prune(self, stored: StoredState) -> None:
        """Remove old checkpoints. They depend on their whole state, so this is only useful after a new whole
        state is written; state that is stored bucket by bucket leaves one behind with every few commits."""
        self._unpruned += 1
        due = PRUNE_COMMITS if stored.rolls else self._keep
        if (stored.whole or stored.rolls) and self._unpruned >= due:
            self._unpruned = 0
            crash_point("flows.prune.before")
            await self._fp.run(flow_store.prune(self._resource, self._token, self._keep))
            crash_point("flows.prune.after")

    async def _cancel(self, begun: Sequence[Checkpoint]) -> None:
        for each in begun:
            idents = self._idents(each.number, Frontier())
            for sink, ident, handle in zip(self._sinks, idents, each.handles, strict=False):
                with within(type(sink).__name__):
                    await sink.cancel(ident, handle)
            crash_point("flows.recover.before_abort")
            await self._fp.run(checkpoint.abort(self._resource, self._token, each.number))

    async def _finish(self, newest: Checkpoint, staged: dict[Any, Any], lacking: frozenset[int]) -> None:
        """Deliver the newest checkpoint to each sink that has not taken it, regardless of its flag."""
        if newest.status == "committed" and not lacking:
            return
        places = lacking if newest.status == "committed" else range(len(self._sinks))
        idents = self._idents(newest.number, Frontier.from_json(newest.frontier))
        handles = [*newest.handles, *([None] * (len(self._sinks) - len(newest.handles)))]
        rejected: Rejected = []
        crash_point("flows.recover.before_finish")
        for place in sorted(places):
            if place > 0:
                crash_point("flows.recover.between_finishes")
            sink = self._sinks[place]
            with within(type(sink).__name__):
                found = await sink.recover(idents[place], handles[place], staged.get(place, ()))
            rejected.append((sink, found or ()))
        crash_point("flows.recover.after_finish")
        # A flagged checkpoint has its dead letters already.
        await self._flag(newest.number, [] if newest.status == "committed" else rejected)

    async def _lacking(self, durable: Sequence[Checkpoint], previous: int | None) -> frozenset[int] | None:
        """The indexes of sinks that have taken all but the newest checkpoint, which holds their values.

        If a sink has lost more, the task is rewound to the checkpoint that the sink has, and None tells the
        caller to start again from there. A sink that only lags behind an operator's restore has lost nothing.
        """
        stands: dict[int, int] = {}
        if not durable:
            return frozenset()
        newest = durable[-1]
        for place, sink in enumerate(self._sinks):
            if not sink.numbered:
                continue
            with within(type(sink).__name__):
                position = await sink.position(self._names[place]) or 0
            if position > newest.number:
                raise StartRefused(
                    f"{type(sink).__name__} has taken checkpoint {position} of {self._resource}, and "
                    f"PostgreSQL "
                    f"knows of {newest.number} only: it was put back to an older state. Put the sink "
                    f"back too, "
                    "or remove its frontier key to accept what it has."
                )
            stands[place] = await self._fp.run(flow_store.stand(self._resource, position))
        for place, number in stands.items():
            if number not in (newest.number, previous or 0):
                await self._rewind(place, stands, newest.number)
                return None
        return frozenset(place for place, number in stands.items() if number != newest.number)

    async def _rewind(self, place: int, stands: dict[int, int], newest: int) -> None:
        """Rewind to the checkpoint that a sink has. Raises StartRefused if another sink is at a different
        checkpoint and does not replace by key: it would take the values since then a second time."""
        lost = (
            f"{type(self._sinks[place]).__name__} stands at checkpoint {stands[place]} of {self._resource} "
            f"and PostgreSQL at {newest}: the sink has lost what came between, and "
        )
        remedy = (
            f"Restore a savepoint of checkpoint {stands[place]} or before (fencepost flows restore), or set "
            f"its frontier key to {newest} to accept the loss."
        )
        doubled = [
            type(sink).__name__
            for other, sink in enumerate(self._sinks)
            if not sink.keyed and stands.get(other) != stands[place]
        ]
        if doubled:
            raise StartRefused(f"{lost}{', '.join(doubled)} would take it twice. {remedy}")
        try:
            number = await self._fp.run(flow_store.rewind(self._resource, self._token, stands[place]))
        except NotFound:
            raise StartRefused(f"{lost}checkpoint {stands[place]} is no longer kept. {remedy}") from None
        for other, number_then in stands.items():
            if number_then == stands[place]:
                await self._sinks[other].restored(self._names[other], number)

    def _idents(self, number: int, frontier: Frontier) -> list[CheckpointId]:
        """The checkpoint under the name that each sink uses."""
        return [CheckpointId(name, self._token, number, frontier.reached) for name in self._names]


def choose(resource: str, rejected: Rejected) -> list[tuple[str, Sequence[Rejection]]]:
    """The names of dead letters, and the rejections for each. Raises SinkRejected if a user chose to stop."""
    buried: list[tuple[str, Sequence[Rejection]]] = []
    for sink, rejections in rejected:
        if not rejections:
            continue
        if isinstance(sink.on_reject, DeadLetters):
            buried.append((sink.on_reject.name, rejections))
            continue
        first = rejections[0]
        others = f" ({len(rejections)} values of this commit)" if len(rejections) > 1 else ""
        answer = "" if first.answer is None else f" It answered: {first.answer[:500]}"
        error = SinkRejected(
            f"{type(sink).__name__} rejects {preview(first.value)}{others}: {first.error}{answer} {resource} "
            "stops before it, and loses nothing. Fix the sink or the flow, or let the flow continue "
            'without such values: on_reject=DeadLetters("a name") keeps them apart.'
        )
        blame(error, step=type(sink).__name__)
        raise error
    return buried


def names_of(resource: str, sinks: Sequence[Sink]) -> list[str]:
    """The name of the task for each sink. Without distinct names, two sinks that write to the same place
    after the commit would take each other's checkpoints, transactions and ids for their own."""
    names: list[str] = []
    following = 0
    for sink in sinks:
        follows = sink.staged or sink.two_phase
        following += follows
        names.append(f"{resource}~{following}" if follows and following > 1 else resource)
    return names
