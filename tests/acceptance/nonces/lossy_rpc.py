"""A proxy before a chain's RPC: the node executes the call, and its reply is lost.

The sender cannot know whether it arrived. Every so many replies the connection is closed without one.

Or it answers in the node's place, with an error that a test cannot bring a real node to: there it is a mock.
"""

from collections import Counter
from typing import Any

from fencepost_nonces.testing import RpcProxy


class LossyRpc(RpcProxy):
    """`lose_every[method] = n`: of the replies to this method every nth is lost. `lost` counts them.
    `refuse[method] = text`: the call does not reach the node, and the answer is this error.
    `is_dead`: no call reaches the node, and none is answered.
    `says`: no call reaches the node; each is answered with this status and this code of an error.
    """

    def __init__(self, target: str, lose_every: dict[str, int] | None = None) -> None:
        super().__init__(target)
        self.lost: Counter[str] = Counter()
        self.is_dead = False
        self.says: tuple[int, int] | None = None
        self.refuse: dict[str, str] = {}
        self.refused: Counter[str] = Counter()
        self._lose_every = {} if lose_every is None else lose_every
        self._calls: Counter[str] = Counter()

    async def answer(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        method = str(asked["method"])
        if self.is_dead:
            return None
        if self.says is not None:
            status, code = self.says
            return status, {"id": 1, "error": {"code": code, "message": "slowly"}}
        if method in self.refuse:
            self.refused[method] += 1
            return 200, {"id": 1, "error": {"code": -32000, "message": self.refuse[method]}}
        reply = await self.ask_node(asked)
        return None if self._loses(method) else (200, reply)

    def _loses(self, method: str) -> bool:
        every = self._lose_every.get(method)
        if every is None:
            return False
        self._calls[method] += 1
        if self._calls[method] % every:
            return False
        self.lost[method] += 1
        return True
