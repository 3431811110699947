"""The commands about tokens, for the accounts of any service."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.cli.job_commands import acting, actor_name
from fencepost.cli.terminal import answer, answer_json
from fencepost.errors import NotFound
from fencepost.kernel.drivers import run
from fencepost_server.accounts.calls import DAY_SECONDS, Accounts
from fencepost_server.accounts.secret import new_secret


def make_token(accounts: Accounts[Any], name: str, label: str, days: int, *, json_output: bool) -> None:
    """Create a token and print it, once."""
    token = accounts.token_prefix + new_secret()
    made = accounts.make_token(
        token, name, label, None, lifetime_seconds=days * DAY_SECONDS, actor=actor_name(None)
    )
    with acting() as connection, known(f"There is no active account {name} in {accounts.service}."):
        token_id = run(connection, made)
    if json_output:
        answer_json({"token_id": token_id, "token": token})
    else:
        answer(token)


def list_tokens(accounts: Accounts[Any], name: str, *, json_output: bool) -> None:
    """Print the tokens of an account."""
    with acting() as connection:
        found = run(connection, accounts.tokens(name))
    if json_output:
        answer_json([asdict(one) for one in found])
        return
    for one in found:
        state = "revoked" if one.revoked_at else f"until {one.expires_at:%Y-%m-%d}"
        used = f"used {one.used_at:%Y-%m-%d %H:%M}" if one.used_at else "never used"
        answer(f"{one.token_id}  {one.label}  {state}  {used}")


def revoke_token(accounts: Accounts[Any], token_id: int) -> None:
    """Revoke a token. It is refused from the next request on."""
    with acting() as connection, known(f"There is no token {token_id} in {accounts.service}."):
        run(connection, accounts.revoke_token(token_id, actor_name(None)))
    answer(f"Token {token_id} is revoked.")


@contextmanager
def known(otherwise: str) -> Generator[None]:
    """Turns NotFound into an error with this message and exit code 4."""
    try:
        yield
    except NotFound:
        raise UserError(otherwise, ExitCode.NOT_FOUND) from None
