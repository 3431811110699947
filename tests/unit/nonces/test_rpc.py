"""What a node of a chain says, and what it does not know any more."""

from typing import Any

import pytest

from fencepost.nonces.sending.rpc import Chain, RpcError


class Forgetful(Chain):
    """Knows the newest state only, as a node that is no archive."""

    async def call(self, method: str, *params: Any) -> Any:
        if params[-1] == "latest":
            return hex(7)
        raise RpcError(method, "missing trie node")


@pytest.mark.parametrize("head", [5, 100], ids=["the chain is shorter", "the state is gone"])
async def test_what_is_not_known_in_depth_proves_nothing(head: int) -> None:
    chain = Forgetful(1, [])

    assert await chain.transaction_count("0xa") == 7
    assert await chain.final_count("0xa", head, depth=12) == 0


async def test_a_node_without_a_pool_says_nothing_of_it() -> None:
    assert await Forgetful(1, []).pooled_count("0xa") == 0
