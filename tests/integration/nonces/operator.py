"""One node at the database: what it says in SQL, with its name and token."""

from dataclasses import dataclass
from typing import Any

from tests.integration.kernel.caller import Caller, Refused

CHAIN = 1
SIGNER = "0x" + "ab" * 20
RESOURCE = f"signer:{CHAIN}:{SIGNER}"
TTL = "10 seconds"
# For tests whose clock runs: a machine that stands still for a while must not end the lease.
LONG = "1 hour"


@dataclass
class NonceOperator:
    """A node with its boot id; `token` is what it believes to hold."""

    caller: Caller
    owner: str
    token: int = 0
    ttl: str = TTL

    def acquire(self, *, first_nonce: int = 0) -> dict[str, Any]:
        row = self.caller.row(
            "select * from fencepost.nonce_acquire(%s, %s, %s, %s::interval, %s)",
            CHAIN,
            SIGNER,
            self.owner,
            self.ttl,
            first_nonce,
        )
        if row["owner"] == self.owner:
            self.token = row["token"]
        return row

    def reserve(self, *request_ids: str, caller_signs: bool = True, locked: str = "1 minute") -> list[int]:
        return [
            row["nonce"] for row in self.reservations(*request_ids, caller_signs=caller_signs, locked=locked)
        ]

    def reservations(
        self, *request_ids: str, caller_signs: bool = True, locked: str = "1 minute"
    ) -> list[dict[str, Any]]:
        return self.caller.rows(
            "select * from fencepost.nonce_reserve(%s, %s, %s, %s, %s::text[], %s::interval, %s)",
            CHAIN,
            SIGNER,
            self.owner,
            self.token,
            list(request_ids),
            locked,
            caller_signs,
        )

    def used(self, nonce: int, hold: int = 1, tx_hash: str | None = None) -> None:
        self.caller.execute(USED, *self.key, nonce, hold, tx_hash)

    def recyclable(self, nonce: int, hold: int = 1) -> None:
        self.caller.execute(RECYCLABLE, *self.key, nonce, hold)

    def signing(self, nonce: int, hold: int = 1) -> None:
        self.caller.execute(SIGNING, *self.key, nonce, hold)

    def signed(self, nonce: int, tx_hash: str, hold: int = 1) -> None:
        self.caller.execute(SIGNED, *self.key, nonce, hold, tx_hash, b"signed " + tx_hash.encode())

    def tx_signed(self, transaction_id: int, tx_hash: str, hold: int = 1) -> None:
        """A managed transaction that has its nonce: the fees are chosen, and it is signed."""
        self.caller.execute(TX_SIGNING, *self.key, transaction_id, hold)
        self.caller.execute(
            TX_SIGNED, *self.key, transaction_id, hold, tx_hash, b"signed " + tx_hash.encode()
        )

    def broadcast(self, nonce: int, hold: int = 1) -> None:
        self.caller.execute(BROADCAST, *self.key, nonce, hold)

    def floor(self, final: int, latest: int = 0) -> dict[str, Any]:
        return self.caller.row(
            "select * from fencepost.nonce_floor(%s, %s, %s, %s, %s, %s)", *self.key, final, latest
        )

    def recycle(self) -> list[int]:
        return self.caller.column("select * from fencepost.nonce_recycle(%s, %s, %s, %s)", *self.key)

    def refused_reserve(self, reason: str, request_id: str) -> Refused:
        return self.caller.refused(reason, RESERVE, *self.key, [request_id])

    @property
    def key(self) -> tuple[int, str, str, int]:
        return CHAIN, SIGNER, self.owner, self.token


RESERVE = "select * from fencepost.nonce_reserve(%s, %s, %s, %s, %s::text[])"
USED = "select fencepost.nonce_mark_used(%s, %s, %s, %s, %s, %s, %s)"
RECYCLABLE = "select fencepost.nonce_mark_recyclable(%s, %s, %s, %s, %s, %s)"
SIGNING = "select fencepost.nonce_mark_signing(%s, %s, %s, %s, %s, %s)"
SIGNED = "select fencepost.nonce_mark_signed(%s, %s, %s, %s, %s, %s, %s, %s)"
BROADCAST = "select fencepost.nonce_mark_broadcast(%s, %s, %s, %s, %s, %s)"
TX_SIGNING = "select fencepost.nonce_tx_signing(%s, %s, %s, %s, %s, %s, 5, 1)"
TX_SIGNED = "select fencepost.nonce_tx_signed(%s, %s, %s, %s, %s, %s, %s, %s)"
TX_BROADCAST = "select fencepost.nonce_tx_broadcast(%s, %s, %s, %s, %s, %s)"


def statuses(caller: Caller) -> dict[int, str]:
    """Every nonce of the signer with its status."""
    rows = caller.rows("select nonce, status from fencepost.signer_nonce_allocation order by nonce")
    return {row["nonce"]: row["status"] for row in rows}
