"""A workflow in memory: what its function decides, without a server."""

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from fencepost import ChildJob, ChildJobFailed, EventTimeout, Fencepost, Job, StepNameTaken, Workflow
from fencepost.errors import InvalidInput
from fencepost.testing import KitError, run_inline

fp = Fencepost("postgresql://nowhere/nothing")


class Quote(BaseModel):
    cents: int


async def price(order_id: int) -> Quote:
    return Quote(cents=order_id * 100)


async def reserve(tx: Any, order_id: int) -> str:
    tx.append(order_id)
    return f"reserved {order_id}"


@fp.job("undo")
async def unreserve(job: Job, what: str) -> None: ...


@fp.job("packing")
async def pack(job: Job, line: int) -> int: ...  # type: ignore[empty-body]


@fp.workflow("orders", version=2, accepts={1, 2})
async def fulfil(wf: Workflow, order_id: int, pages: int = 0) -> list[Any]:
    quote = await wf.step(price, order_id)
    undo = wf.options(undo=lambda result: unreserve.submission(what=result))
    await undo.transaction(reserve, order_id)
    try:
        approved = await wf.event("approve", Quote, timeout=timedelta(days=2))
    except EventTimeout:
        raise RuntimeError("nobody approved") from None
    await wf.sleep(3600)
    packed = await wf.gather(*(ChildJob.of(pack.submission(line=line)) for line in range(2)))
    if pages:
        await wf.restart(order_id=order_id, pages=pages - 1)
    return [quote.cents, approved.cents, packed, wf.since(2), wf.round]


@fp.workflow("orders")
async def ledger(wf: Workflow, order_id: int) -> None:
    undo = unreserve.submission(what="ledger")
    await wf.options(undo=undo).write(("insert into ledger values (%s)", (order_id,)))
    if not order_id:
        raise RuntimeError("no order")


def packed(line: int) -> int:
    return line + 1


def cheap(order_id: int) -> Quote:
    return Quote(cents=1)


def no_reserve(tx: Any, order_id: int) -> str:
    return "stubbed"


GIVEN: dict[str, Any] = {"events": {"approve": {"cents": 5}}, "children": {"pack": packed}}


async def test_it_runs_to_its_end_without_waiting() -> None:
    tx: list[int] = []

    outcome = await run_inline(fulfil, arguments={"order_id": 7}, tx=tx, **GIVEN)

    assert outcome.result == [700, 5, [1, 2], True, 0]
    assert outcome.names == ["price", "reserve", "approve", "sleep", "gather"]
    assert (tx, outcome.undo) == ([7], [])


async def test_steps_can_be_stubbed_by_name_and_another_version_run() -> None:
    stubs: dict[str, Any] = {"price": cheap, "reserve": no_reserve}

    outcome = await run_inline(fulfil, arguments={"order_id": 7}, stubs=stubs, version=1, **GIVEN)

    assert outcome.result == [1, 5, [1, 2], False, 0]


async def test_statements_go_to_the_transaction_that_a_test_gives() -> None:
    class Statements(list[Any]):
        def execute(self, query: str, parameters: Any) -> None:
            self.append((query, parameters))

    written = Statements()
    outcome = await run_inline(ledger, arguments={"order_id": 7}, tx=written)

    assert (outcome.result, outcome.names) == (None, ["write"])
    assert written == [("insert into ledger values (%s)", (7,))]
    assert [undo.payload for undo in (await run_inline(ledger, arguments={"order_id": 0})).undo] == [
        {"what": "ledger"}
    ]


async def test_a_failure_shows_what_would_be_undone() -> None:
    outcome = await run_inline(fulfil, arguments={"order_id": 7}, tx=[])

    with pytest.raises(RuntimeError, match="nobody approved"):
        _ = outcome.result
    assert [undo.payload for undo in outcome.undo] == [{"what": "reserved 7"}]


async def test_a_restart_begins_again() -> None:
    outcome = await run_inline(fulfil, arguments={"order_id": 7, "pages": 2}, tx=[], **GIVEN)

    assert (outcome.restarts, outcome.result[-1]) == (2, 2)


async def test_a_failed_child_and_one_without_a_function_are_named() -> None:
    def fail(line: int) -> int:
        raise ValueError("torn")

    outcome = await run_inline(
        fulfil, arguments={"order_id": 7}, tx=[], events=GIVEN["events"], children={"pack": fail}
    )
    with pytest.raises(ChildJobFailed, match="ValueError: torn"):
        _ = outcome.result
    outcome = await run_inline(fulfil, arguments={"order_id": 7}, tx=[], events=GIVEN["events"])
    assert isinstance(outcome.error, Exception)


async def test_what_would_wait_for_ever_says_so() -> None:
    @fp.workflow("orders", kind="waits")
    async def waits(wf: Workflow) -> None:
        await wf.event("never")

    with pytest.raises(KitError, match="'never' for ever"):
        _ = (await run_inline(waits)).result


async def test_a_name_used_twice_is_an_error_here_too() -> None:
    @fp.workflow("orders", kind="twice")
    async def twice(wf: Workflow) -> None:
        await wf.step(price, 1)
        await wf.step(price, 1)

    with pytest.raises(StepNameTaken, match="options\\(key"):
        _ = (await run_inline(twice)).result


async def test_what_cannot_be_stored_is_refused_when_the_step_runs() -> None:
    async def gives_a_function() -> Any:
        return price

    @fp.workflow("orders", kind="unstorable")
    async def unstorable(wf: Workflow) -> None:
        await wf.step(gives_a_function)

    with pytest.raises(InvalidInput, match="cannot be stored"):
        _ = (await run_inline(unstorable)).result


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"version": 0}, "version"),
        ({"version": 3, "accepts": {1, 2}}, "accepts"),
        ({"kind": "a/b"}, "name"),
        ({"kind": "x" * 49}, "name"),
        ({"queue": "a@b"}, "queue"),
    ],
)
def test_a_wrong_declaration_is_refused_at_once(options: dict[str, Any], field: str) -> None:
    async def work(wf: Workflow) -> None: ...

    queue = options.pop("queue", "orders")
    with pytest.raises(InvalidInput) as caught:
        fp.workflow(queue, **options)(work)
    assert caught.value.field == field


def test_a_worker_of_a_queue_takes_the_workflows_of_it() -> None:
    app = Fencepost("postgresql://nowhere/nothing")

    @app.workflow("orders", version=2, accepts={1, 2})
    async def work(wf: Workflow) -> None: ...

    @app.job("mail")
    async def send(job: Job) -> None: ...

    assert app.handlers.of(["orders"]).queues == ("orders/work@1", "orders/work@2")
    assert app.handlers.of(["orders/work@2", "mail"]).queues == ("mail", "orders/work@2")
    with pytest.raises(InvalidInput, match="No handler serves order;"):
        app.handlers.of(["order"])
