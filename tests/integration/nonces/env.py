"""Several nodes in one process, each with pools, a name and leases of its own."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost_nonces._settings import NoncesSettings
from fencepost_nonces.node import Node
from fencepost_nonces.signer import Signer

ALICE = Signer.of(1, "0x" + "a1" * 20)
SAMPLE = "fencepost_nonces_fence_reject_total"


class NoncesEnv:
    def __init__(self, database: Database, stack: AsyncExitStack) -> None:
        self._database = database
        self._stack = stack
        self.clients: dict[Node, Fencepost] = {}

    async def node(self, **settings: Any) -> Node:
        """One more node, which is stopped at the end."""
        fp = Fencepost(self._database.url)
        await self._stack.enter_async_context(fp)
        # Long enough for a machine that stands still: who waits is never turned away for that.
        node = Node(fp, NoncesSettings.model_validate({"wait_seconds": 60.0, **settings}))
        self.clients[node] = fp
        await node.start()
        self._stack.push_async_callback(node.stop)
        return node

    def rejects(self, node: Node, op: str) -> float:
        """How often the fence refused this node's writes."""
        return self.clients[node].metrics.registry.get_sample_value(SAMPLE, {"op": op}) or 0.0

    def calls(self, node: Node, function: str) -> float:
        """How many statements of this function the node has sent."""
        labels = {"function": function, "outcome": "ok"}
        sample = self.clients[node].metrics.registry.get_sample_value
        return sample("fencepost_call_seconds_count", labels) or 0.0


@asynccontextmanager
async def town_on(database: Database) -> AsyncGenerator[NoncesEnv]:
    async with AsyncExitStack() as stack:
        yield NoncesEnv(database, stack)


async def stand_still(node: Node) -> None:
    """It renews nothing and hands nothing over any more, as a paused process."""
    await node._lease_loop.stop()  # pyright: ignore[reportPrivateUsage]
    await node._signer_leases.keeper.close()  # pyright: ignore[reportPrivateUsage]
