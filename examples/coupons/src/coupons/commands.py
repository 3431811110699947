"""`fencepost coupons`."""

import typer

from coupons import calls
from fencepost import Fencepost

app = typer.Typer(help="Issue and redeem coupons.", no_args_is_help=True)


@app.command()
def issue(code: str) -> None:
    """Issue a coupon."""
    with Fencepost.from_env().sync() as fp:
        fp.run(calls.issue(code))
    typer.echo(f"Issued {code}.")


@app.command()
def redeem(code: str, customer: str) -> None:
    """Redeem a coupon for a customer."""
    with Fencepost.from_env().sync() as fp:
        redeemed_at = fp.run(calls.redeem(code, customer))
    typer.echo(f"{customer} redeemed {code} at {redeemed_at.isoformat()}.")
