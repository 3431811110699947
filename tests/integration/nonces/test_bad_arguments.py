"""What callers in SQL get wrong is named: the address, the value and the gas are not left to Python."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from fencepost.embedded import Database
from tests.integration.kernel.caller import Caller

SIGNER = "0x" + "cd" * 20
TO = "0x" + "ab" * 20
SUBMIT = "select * from fencepost.nonce_tx_submit(31337, %s, 'pay-7', 'sha256:7', %s, %s, null, %s)"


@pytest.fixture
def app(database: Database) -> Iterator[Caller]:
    with closing(Caller(database.url)) as caller:
        yield caller


@pytest.mark.parametrize(
    ("field", "to", "value", "gas"),
    [
        ("to", "0x12", 5, 21000),
        ("to", TO.upper(), 5, 21000),
        ("value", TO, -1, 21000),
        ("value", TO, None, 21000),
        ("value", TO, 2**256, 21000),
        ("gas", TO, 5, 0),
        ("gas", TO, 5, None),
    ],
)
def test_a_transaction_names_what_is_wrong_with_it(
    app: Caller, field: str, to: str, value: Any, gas: int | None
) -> None:
    app.invalid(field, SUBMIT, SIGNER, to, value, gas)


def test_counts_are_not_negative(app: Caller) -> None:
    acquire = "select * from fencepost.nonce_acquire(31337, %s, 'node-1', '1 minute', %s)"
    app.invalid("first_nonce", acquire, SIGNER, -1)
    floor = "select * from fencepost.nonce_floor(31337, %s, 'node-1', 1, %s)"
    app.invalid("chain_count", floor, SIGNER, -1)


def test_only_what_is_there_and_not_over_can_be_cancelled(app: Caller, database: Database) -> None:
    cancel = "select fencepost.nonce_tx_cancel(%s)"
    app.refused("not_found", cancel, 4711)

    transaction_id = app.row(SUBMIT, SIGNER, TO, 5, 21000)["transaction_id"]
    with database.connect_admin() as admin:
        admin.execute("update fencepost.nonce_transaction set state = 'REJECTED'")
    app.refused("already_finished", cancel, transaction_id)
