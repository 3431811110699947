"""`fencepost nonces`: inspect signers and their nonces, and settle a nonce by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.terminal import JsonOption, answer, answer_json
from fencepost_nonces.commands import _recovery as recovery
from fencepost_nonces.commands._context import table, with_client, with_node

if TYPE_CHECKING:
    from fencepost.client import Fencepost
    from fencepost_nonces.node import Node
    from fencepost_nonces.signer import Signer

ChainId = Annotated[int, typer.Argument(metavar="CHAIN", help="The chain's id.", min=1)]
SignerName = Annotated[str, typer.Argument(metavar="SIGNER", help="An address, or a name.")]
Nonce = Annotated[int, typer.Argument(metavar="NONCE", min=0)]
Hold = Annotated[int, typer.Option("--hold", min=1, help="The hold number from the reservation.")]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Inspect signers and their nonces, and settle one by hand.

    \b
    Examples:
      fencepost nonces signers                          the owner of each signer, and what is in progress
      fencepost nonces show 1 0x5aAeb6...               one signer and its newest nonces
      fencepost nonces nodes                            the nodes that are alive
      fencepost nonces reserve 1 0x5aAeb6... pay-7      a nonce for the request pay-7
      fencepost nonces used 1 0x5aAeb6... 41 --hold 1   it was used
      fencepost nonces release 1 0x5aAeb6... 41 --hold 1   it was neither used nor signed
      fencepost nonces sync 1 0x5aAeb6...               lift the sequence to what the chain has counted
      fencepost nonces resume 1 0x5aAeb6... --next 57   after `fencepost recover`: the next nonce to use
    """,
)
app.command("resume")(recovery.resume)


@app.command("signers")
def signers(json_output: JsonOption = False) -> None:
    """List every signer: its holder, the position of its sequence, and the nonces in flight."""
    from fencepost_nonces import _queries as queries  # noqa: PLC0415 - Not needed by --help.

    rows = with_client(lambda fp: fp.run(queries.signers()))
    if json_output:
        answer_json(rows)
    else:
        table(
            rows,
            (
                "chain_id",
                "signer",
                "next_nonce",
                "gaps",
                "held_count",
                "broadcast",
                "fencing_token",
                "owner_node",
            ),
        )


@app.command("show")
def show(
    chain_id: ChainId,
    signer: SignerName,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Maximum number of nonces.")] = 20,
    json_output: JsonOption = False,
) -> None:
    """Show one signer and its newest nonces."""
    from fencepost_nonces import _queries as queries  # noqa: PLC0415
    from fencepost_nonces.signer import Signer  # noqa: PLC0415

    one = Signer.of(chain_id, signer)

    async def read(fp: Fencepost) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        return await fp.run(queries.signer(one)), await fp.run(queries.strip(one, None, limit))

    found, nonces = with_client(read)
    if not found:
        raise UserError(f"{one.resource} has never been used.", ExitCode.NOT_FOUND)
    if json_output:
        answer_json({**found[0], "nonces": nonces})
        return
    table(found, ("chain_id", "signer", "next_nonce", "chain_count", "gaps", "fencing_token", "owner_node"))
    table(nonces, ("nonce", "status", "hold", "request_id", "tx_hash", "fencing_token", "updated_at"))


@app.command("nodes")
def nodes(json_output: JsonOption = False) -> None:
    """List the live nodes, by the leases on their addresses."""
    from fencepost_nonces import _nonce_calls as nonce_calls  # noqa: PLC0415

    seen = with_client(lambda fp: fp.run(nonce_calls.nodes()))
    rows = [{"address": node.address, "owner": node.owner, "expires_at": node.expires_at} for node in seen]
    if json_output:
        answer_json(rows)
    else:
        table(rows, ("address", "owner", "expires_at"))


@app.command("reserve")
def reserve(
    chain_id: ChainId,
    signer: SignerName,
    request_ids: Annotated[list[str], typer.Argument(metavar="REQUEST", help="One id for each nonce.")],
    json_output: JsonOption = False,
) -> None:
    """Reserve a nonce for each request; the same request gets the same nonce. Only you can release it."""
    rows = with_node(chain_id, signer, lambda node, one: node.reserve(one, request_ids))
    if json_output:
        answer_json(
            [{"request_id": r.request_id, "nonce": r.nonce, "hold": r.hold, "status": r.status} for r in rows]
        )
    else:
        for row in rows:
            answer(f"{row.request_id}: nonce {row.nonce}, hold {row.hold}, {row.status}")


@app.command("used")
def used(
    chain_id: ChainId,
    signer: SignerName,
    nonce: Nonce,
    hold: Hold,
    tx_hash: Annotated[
        str | None, typer.Option("--tx-hash", help="By this transaction.", show_default=False)
    ] = None,
) -> None:
    """Mark a nonce as used: CONSUMED."""
    with_node(chain_id, signer, lambda node, one: node.mark_used(one, nonce, hold, tx_hash))
    answer(f"{nonce}: CONSUMED")


@app.command("release")
def release(chain_id: ChainId, signer: SignerName, nonce: Nonce, hold: Hold) -> None:
    """Release a nonce that was neither used nor signed: RELEASED. Refused from SIGNING on."""
    with_node(chain_id, signer, lambda node, one: node.mark_recyclable(one, nonce, hold))
    answer(f"{nonce}: RELEASED")


@app.command("sync")
def sync(chain_id: ChainId, signer: SignerName) -> None:
    """Raise the sequence to the chain's count, after the key was used elsewhere."""
    from fencepost_nonces import _nonce_calls as nonce_calls  # noqa: PLC0415
    from fencepost_nonces._settings import NoncesSettings  # noqa: PLC0415
    from fencepost_nonces.sending._rpc import Chain  # noqa: PLC0415

    settings = NoncesSettings.load()
    if chain_id not in settings.endpoints:
        raise UserError(f"Chain {chain_id} is not one of NONCES_CHAINS.", ExitCode.SETTINGS)

    async def lift(node: Node, one: Signer) -> nonce_calls.Floor:
        chain = Chain(chain_id, settings.endpoints[chain_id])
        try:
            counts = await chain.counts(one.name, settings.confirmations)
        finally:
            await chain.close()
        return await node.write(one, lambda lease: nonce_calls.floor(one, lease, counts.final, counts.latest))

    floor = with_node(chain_id, signer, lift)
    answer(f"next nonce {floor.next_nonce}; {floor.consumed} below it were used")
