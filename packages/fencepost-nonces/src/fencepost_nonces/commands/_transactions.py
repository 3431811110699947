"""`fencepost tx`: send a transaction once, follow it, cancel it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.terminal import JsonOption, answer, answer_json
from fencepost_nonces.commands import _recovery as recovery
from fencepost_nonces.commands._context import table, with_client
from fencepost_nonces.commands._recovery import TransactionId
from fencepost_nonces.sending._fees import Speed

if TYPE_CHECKING:
    from fencepost.client import Fencepost

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Send a transaction once, follow it, cancel it.

    \b
    Examples:
      fencepost tx send --key pay-7 --chain 1 --signer 0x5aAe... --to 0xfB69... --value 1000
      fencepost tx show 7
      fencepost tx list --state BOUND
      fencepost tx cancel 7                 at once, or by a no-op with its nonce
      fencepost tx keys                     the addresses that can be signed for here
      fencepost tx vouch 7                  after `fencepost recover`: it was not sent, send it
      fencepost tx close 7 --tx-hash 0x...  after `fencepost recover`: it was mined as this

    A transaction is only taken in here; processes with the role `nonces` send it.
    """,
)
app.command("vouch")(recovery.vouch)
app.command("close")(recovery.close)


@app.command("send")
def send(
    key: Annotated[str, typer.Option("--key", help="Names the transaction: the same key sends once.")],
    chain_id: Annotated[int, typer.Option("--chain", min=1, help="The chain's id.")],
    signer: Annotated[str, typer.Option("--signer", help="The sender's address.")],
    to: Annotated[
        str | None, typer.Option("--to", help="The recipient's address.", show_default="a new contract")
    ] = None,
    value: Annotated[str, typer.Option("--value", help="In wei.", metavar="WEI")] = "0",
    data: Annotated[str, typer.Option("--data", help="0x and hexadecimal digits.")] = "0x",
    gas: Annotated[
        int | None, typer.Option("--gas", min=1, help="The limit.", show_default="estimated")
    ] = None,
    speed: Annotated[Speed, typer.Option("--speed", help="How soon it should be mined.")] = "standard",
    fee_cap: Annotated[
        str | None,
        typer.Option(
            "--fee-cap",
            help="The most it offers for a unit of gas, in wei.",
            metavar="WEI",
            show_default="NONCES_MAX_FEE_GWEI",
        ),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline",
            help="Cancelled if it is not mined by then: 2026-05-01T12:00:00Z.",
            show_default="none",
        ),
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option("--webhook", help="The webhook channel to report its outcome to.", show_default=False),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Submit a transaction. The same key again returns the same transaction."""
    from datetime import datetime  # noqa: PLC0415 - Not needed by --help.

    from fencepost_nonces._settings import NoncesSettings  # noqa: PLC0415
    from fencepost_nonces.sending import _transaction_calls as tx_calls  # noqa: PLC0415 - Slow to load.
    from fencepost_nonces.sending._acceptance import accepted_gas  # noqa: PLC0415
    from fencepost_nonces.sending._rpc import Chain  # noqa: PLC0415
    from fencepost_nonces.sending._transaction_calls import (  # noqa: PLC0415
        FeePolicy,
        Submission,
        Submitted,
        TransactionRequest,
    )
    from fencepost_nonces.signer import Signer, address  # noqa: PLC0415

    settings, sender = NoncesSettings.load(), Signer.of(chain_id, signer)
    if chain_id not in settings.endpoints:
        raise UserError(f"Chain {chain_id} is not one of NONCES_CHAINS.", ExitCode.SETTINGS)
    try:
        order = TransactionRequest(
            to and address(to, field="to"), int(value), bytes.fromhex(data.removeprefix("0x")), gas
        )
        until = None if deadline is None else datetime.fromisoformat(deadline)
        policy = FeePolicy(speed, None if fee_cap is None else int(fee_cap), until)
    except ValueError as error:
        raise UserError(str(error), ExitCode.USAGE) from None
    order.check(settings.gas_max)
    policy.check()
    if sender.name not in _addresses():
        raise UserError(f"There is no key for the signer {sender.name} here.")
    asked = Submission(sender, tx_calls.check_key(key), order, policy, webhook)

    async def submit(fp: Fencepost) -> Submitted:
        chain = Chain(chain_id, settings.endpoints[chain_id])
        try:
            known = await fp.run(tx_calls.gas_of_keys([key]))
            estimate = await accepted_gas(asked, known, chain, settings)
        finally:
            await chain.close()
        return await fp.run(tx_calls.submit(sender, key, order, policy=policy, webhook=webhook, gas=estimate))

    taken = with_client(submit)
    if json_output:
        answer_json(
            {"transaction_id": taken.transaction_id, "state": taken.state, "repeated": taken.repeated}
        )
    else:
        answer(f"transaction {taken.transaction_id}: {taken.state}{' (again)' if taken.repeated else ''}")


@app.command("show")
def show(transaction_id: TransactionId, json_output: JsonOption = False) -> None:
    """Show everything about one transaction."""
    from fencepost_nonces.sending import _transaction_calls as tx_calls  # noqa: PLC0415

    found = with_client(lambda fp: fp.run(tx_calls.find(transaction_id)))
    if not found:
        raise UserError(f"There is no transaction {transaction_id}.", ExitCode.NOT_FOUND)
    if json_output:
        answer_json(found[0])
    else:
        answer("\n".join(f"{name}: {value}" for name, value in found[0].items() if value is not None))


@app.command("list")
def list_transactions(
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Maximum number of results.")] = 50,
    chain_id: Annotated[
        int | None, typer.Option("--chain", min=1, help="With --signer: the chain's id.", show_default=False)
    ] = None,
    signer: Annotated[
        str | None, typer.Option("--signer", help="Of this signer only.", show_default=False)
    ] = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="In this state; may be repeated.", show_default=False)
    ] = None,
    created_from: Annotated[
        str | None, typer.Option("--from", help="Accepted at this time or later.", show_default=False)
    ] = None,
    created_until: Annotated[
        str | None, typer.Option("--until", help="Accepted before this time.", show_default=False)
    ] = None,
    below: Annotated[
        int | None, typer.Option("--below", min=1, help="The last id of the page before.", show_default=False)
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """List the newest transactions."""
    from datetime import datetime  # noqa: PLC0415 - Not needed by --help.

    from fencepost_nonces.sending import _transaction_calls as tx_calls  # noqa: PLC0415
    from fencepost_nonces.sending._api import filters_of  # noqa: PLC0415

    try:
        since, until = (
            None if given is None else datetime.fromisoformat(given).astimezone()
            for given in (created_from, created_until)
        )
        filters = filters_of(chain_id, signer, tx_calls.states_of(state or []), since, until)
    except ValueError as error:
        raise UserError(str(error), ExitCode.USAGE) from None
    rows = with_client(lambda fp: fp.run(tx_calls.newest(limit, below, filters)))
    if json_output:
        answer_json(rows)
    else:
        table(
            rows,
            ("transaction_id", "chain_id", "signer", "state", "nonce", "nonce_status", "tx_hash", "error"),
        )


@app.command("cancel")
def cancel(transaction_id: TransactionId) -> None:
    """Cancel a transaction: at once if it waits; otherwise a no-op takes its nonce, and the chain decides."""
    from fencepost_nonces.sending import _transaction_calls as tx_calls  # noqa: PLC0415

    state = with_client(lambda fp: fp.run(tx_calls.cancel(transaction_id)))
    answer(
        f"transaction {transaction_id}: {state if state == 'CANCELLED' else 'a no-op will take its nonce'}"
    )


@app.command("keys")
def keys(json_output: JsonOption = False) -> None:
    """List the addresses whose keys are configured here. Never shows a key."""
    from fencepost_nonces.signer import checksummed  # noqa: PLC0415

    known = sorted(checksummed(address) for address in _addresses())
    if json_output:
        answer_json(known)
    else:
        answer("\n".join(known))


def _addresses() -> frozenset[str]:
    import asyncio  # noqa: PLC0415 - Not needed by --help.

    from fencepost_nonces._settings import NoncesSettings  # noqa: PLC0415
    from fencepost_nonces.sending._key_store import keys_of  # noqa: PLC0415

    async def read() -> frozenset[str]:
        keeper = await keys_of(NoncesSettings.load())
        try:
            return await keeper.addresses()
        finally:
            await keeper.close()

    return asyncio.run(read())
