"""What the commands of nonces and transactions share: a client, a short-lived node, a table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from fencepost.cli.terminal import answer_rich

if TYPE_CHECKING:
    from fencepost.client import Fencepost
    from fencepost_nonces.node import Node
    from fencepost_nonces.signer import Signer

T = TypeVar("T")


def with_client(ask: Callable[[Fencepost], Awaitable[T]]) -> T:
    import asyncio  # noqa: PLC0415 - Not needed by --help.

    from fencepost.client import Fencepost  # noqa: PLC0415

    async def run() -> T:
        async with Fencepost.from_env() as fp:
            return await ask(fp)

    return asyncio.run(run())


def with_node(chain_id: int, signer: str, ask: Callable[[Node, Signer], Awaitable[T]]) -> T:
    """Run `ask` on a short-lived node: it asks the owner to hand over, and writes under its own fence.

    It does not join as a member: signers would be assigned to it, and no other node could reach it.
    """
    from fencepost_nonces._http_service import first_nonce_of  # noqa: PLC0415
    from fencepost_nonces._operator import short_lived_node  # noqa: PLC0415
    from fencepost_nonces._settings import NoncesSettings  # noqa: PLC0415
    from fencepost_nonces.sending._rpc import Chains  # noqa: PLC0415
    from fencepost_nonces.signer import Signer  # noqa: PLC0415

    one = Signer.of(chain_id, signer)
    settings = NoncesSettings.load()

    async def run(fp: Fencepost) -> T:
        chains = Chains(dict(settings.endpoints))
        try:
            async with short_lived_node(fp, settings, first_nonce=first_nonce_of(fp, chains)) as node:
                return await ask(node, one)
        finally:
            await chains.close()

    return with_client(run)


def table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    from rich.table import Table  # noqa: PLC0415

    drawn = Table(*columns)
    for row in rows:
        drawn.add_row(*("" if row[name] is None else str(row[name]) for name in columns))
    answer_rich(drawn)
