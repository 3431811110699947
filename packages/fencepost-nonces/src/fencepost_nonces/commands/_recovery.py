"""After `fencepost recover`: an operator sets a signer's next nonce, and the outcome of a transaction.

A restored backup does not contain what was issued and sent after it was made. The chain knows what is mined
and what its pool holds; only people know what is held or signed elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.terminal import answer
from fencepost_nonces.commands._context import with_client, with_node

if TYPE_CHECKING:
    from fencepost_nonces._nonce_calls import Resumed
    from fencepost_nonces.node import Node
    from fencepost_nonces.sending._rpc import Chain
    from fencepost_nonces.signer import Signer

LOOKS = 5
TransactionId = Annotated[int, typer.Argument(metavar="ID", min=1, help="The transaction's id.")]


def resume(
    chain_id: Annotated[int | None, typer.Argument(metavar="CHAIN", help="The chain's id.", min=1)] = None,
    signer: Annotated[str | None, typer.Argument(metavar="SIGNER", help="An address, or a name.")] = None,
    next_nonce: Annotated[
        int | None,
        typer.Option(
            "--next",
            min=0,
            help="The first nonce that no caller can have; without it, the first that the chain and its"
            " pool have not seen.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """After a restored backup: set where a signer continues. Without arguments, every signer that waits.

    Nonces between the chain's count and --next may have been issued in the lost time. They are held for their
    owner, as `fencepost nonces show` lists, until the owner or the chain says that they were used.
    """
    if chain_id is not None and signer is not None:
        _resume_one(chain_id, signer, next_nonce)
        return
    if chain_id is not None or next_nonce is not None:
        raise UserError("Give both the chain and the signer, or neither.", ExitCode.USAGE)
    from fencepost_nonces import _nonce_calls as nonce_calls  # noqa: PLC0415 - Not needed by --help.
    from fencepost_nonces import _queries as queries  # noqa: PLC0415

    for row in with_client(lambda fp: fp.run(queries.recovering())):
        _resume_one(row["chain_id"], row["signer"], None)
    with_client(lambda fp: fp.run(nonce_calls.close_recovery()))
    answer("The recovery is complete: a signer that appears from now on is new.")


def _resume_one(chain_id: int, signer: str, next_nonce: int | None) -> None:
    from fencepost_nonces import _nonce_calls as nonce_calls  # noqa: PLC0415

    async def go_on(node: Node, one: Signer) -> Resumed:
        counted = await _counted(one)
        if counted is None and next_nonce is None:
            raise UserError(
                f"No endpoint is configured for {one.resource}: give its next nonce with --next.",
                ExitCode.USAGE,
            )
        latest, seen = counted or (0, 0)
        least = max(seen, next_nonce or 0)
        return await node.write(one, lambda lease: nonce_calls.resume(one, lease, latest, least))

    resumed = with_node(chain_id, signer, go_on)
    answer(f"{chain_id} {signer}: next nonce {resumed.next_nonce}; {resumed.outside} below it are outside")


async def _counted(one: Signer) -> tuple[int, int] | None:
    """The transaction counts at the newest block and with the pool; None when there is no chain to ask.

    The highest of several reads: an endpoint that lags behind counts less, and the nonces that it does not
    count would be issued again.
    """
    chain = _chain(one.chain_id)
    if chain is None or not one.name.startswith("0x"):
        return None
    try:
        latest = max([(await chain.counts(one.name, 0)).latest for _ in range(LOOKS)])
        return latest, max([latest, *[await chain.pooled_count(one.name) for _ in range(LOOKS)]])
    finally:
        await chain.close()


def vouch(transaction_id: TransactionId) -> None:
    """Confirm that it was mined neither in the time that the backup lost nor with its nonce: it is sent."""
    from fencepost_nonces.sending import _transaction_calls as tx_calls  # noqa: PLC0415

    facts = _in_doubt(transaction_id)
    with_node(
        facts["chain_id"],
        facts["signer"],
        lambda node, one: node.write(one, lambda lease: tx_calls.vouch(one, lease, transaction_id)),
    )
    answer(f"transaction {transaction_id}: it will be sent")


def close(
    transaction_id: TransactionId,
    tx_hash: Annotated[str, typer.Option("--tx-hash", help="The hash under which it was mined.")],
) -> None:
    """Confirm that it was mined as this hash, which is not recorded here. It is not sent again."""
    from fencepost_nonces.sending import _transaction_calls as tx_calls  # noqa: PLC0415

    facts = _in_doubt(transaction_id)

    async def end(node: Node, one: Signer) -> None:
        kept = await _receipt(one, tx_hash)
        await node.write(one, lambda lease: tx_calls.close(one, lease, transaction_id, tx_hash, kept))

    with_node(facts["chain_id"], facts["signer"], end)
    answer(f"transaction {transaction_id}: CONFIRMED")


async def _receipt(one: Signer, tx_hash: str) -> dict[str, Any]:
    """The stored part of the receipt. Refuses a hash that the chain does not know, or of another sender.

    Also refuses one whose block the chain does not have at its number: a fork, or an endpoint lags behind.
    """
    chain = _chain(one.chain_id)
    if chain is None:
        raise UserError(f"Chain {one.chain_id} is not one of NONCES_CHAINS.", ExitCode.SETTINGS)
    try:
        receipt = await chain.receipt(tx_hash)
        block = None if receipt is None else await chain.block(int(receipt["blockNumber"], 16))
    finally:
        await chain.close()
    if receipt is None or str(receipt.get("from")).lower() != one.name:
        raise UserError(
            f"Chain {one.chain_id} knows no transaction {tx_hash} of {one.name}.", ExitCode.NOT_FOUND
        )
    if block is None or block.block_hash != str(receipt["blockHash"]).lower():
        raise UserError(
            f"Chain {one.chain_id} does not show the block {receipt['blockHash']} of {tx_hash}. "
            "Its endpoints contradict each other. Ask again.",
            ExitCode.NOT_FOUND,
        )
    return {
        "status": int(receipt.get("status") or "0x1", 16),
        "block_number": int(receipt["blockNumber"], 16),
        "block_hash": receipt["blockHash"],
    }


def _in_doubt(transaction_id: int) -> dict[str, Any]:
    from fencepost_nonces.sending import _transaction_calls as tx_calls  # noqa: PLC0415

    found = with_client(lambda fp: fp.run(tx_calls.find(transaction_id)))
    if not found:
        raise UserError(f"There is no transaction {transaction_id}.", ExitCode.NOT_FOUND)
    if found[0]["in_doubt_since"] is None and found[0]["unproved_since"] is None:
        raise UserError(f"Transaction {transaction_id} is not in doubt: it is {found[0]['state']}.")
    return found[0]


def _chain(chain_id: int) -> Chain | None:
    from fencepost_nonces._settings import NoncesSettings  # noqa: PLC0415
    from fencepost_nonces.sending._rpc import Chain  # noqa: PLC0415

    endpoints = NoncesSettings.load().endpoints
    return Chain(chain_id, endpoints[chain_id]) if chain_id in endpoints else None
