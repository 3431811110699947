"""Grant a sword once, however often the request is sent, and also when the reply to COMMIT is lost.

python examples/grant_once.py 7 request-1
python examples/grant_once.py 7 request-1        the same answer, and no second sword
"""

import asyncio
import sys
from typing import Any

from fencepost import Fencepost, IndeterminateCommit, InFlight, digest


async def grant(fp: Fencepost, player: int, request_id: str, item: str) -> dict[str, Any]:
    """Answers what the first grant answered. Safe to repeat: it settles every doubt by asking again."""
    for pause_seconds in (0.01, 0.1, 1.0):
        try:
            return await grant_or_doubt(fp, player, request_id, item)
        except (IndeterminateCommit, InFlight):
            # It may have happened, or another process is at it: the same claim again tells which.
            await asyncio.sleep(pause_seconds)
    return await grant_or_doubt(fp, player, request_id, item)


async def grant_or_doubt(fp: Fencepost, player: int, request_id: str, item: str) -> dict[str, Any]:
    async with fp.transaction() as tx:
        claim = await tx.claim(
            f"player:{player}",
            request_id,
            # The same key with another body is a mistake of the caller, and is refused as Mismatch.
            digest=digest("grant", [player, item]),
            response={"player": player, "granted": item},
        )
        if claim.claimed:
            await tx.execute("insert into inventory (player, item) values (%s, %s)", (player, item))
        return dict(claim.response, repeated=claim.replayed)


async def main(player: int, request_id: str) -> None:
    async with Fencepost.from_env() as fp:
        print(await grant(fp, player, request_id, "sword"))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
