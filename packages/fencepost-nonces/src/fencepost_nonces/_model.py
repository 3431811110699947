"""The request and response bodies of the HTTP API."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from fencepost_nonces._nonce_calls import End, NonceEnding, Reservation, Status

RequestId = Annotated[str, Field(min_length=1, max_length=180)]
Hold = Annotated[int, Field(ge=1)]
TxHash = Annotated[str, Field(pattern=r"^0x[0-9a-f]{64}$")]
HexBytes = Annotated[str, Field(pattern=r"^0x([0-9a-fA-F]{2})*$", max_length=524_290)]
BLOCK_MAX = 1000


class Strict(BaseModel):
    """Rejects unknown fields: one is a typing error of the caller, and must not be dropped silently."""

    model_config = ConfigDict(extra="forbid")


class ReserveBody(Strict):
    """One request, or a block: the requests of a block are `request_id/0`, `request_id/1` and so on."""

    request_id: RequestId
    count: Annotated[int, Field(ge=1, le=BLOCK_MAX)] | None = None

    def request_ids(self) -> list[str]:
        if self.count is None:
            return [self.request_id]
        return [f"{self.request_id}/{place}" for place in range(self.count)]


class HoldBody(Strict):
    hold: Hold


class UsedBody(HoldBody):
    tx_hash: TxHash | None = None


class SignedBody(HoldBody):
    tx_hash: TxHash
    raw: Annotated[HexBytes, Field(min_length=4)]


class EndingBody(UsedBody):
    """One entry of a block: whether the nonce was used or is recyclable."""

    nonce: Annotated[int, Field(ge=0, le=2**63 - 1)]
    event: End

    def ending(self) -> NonceEnding:
        return NonceEnding(self.nonce, self.hold, self.event, self.tx_hash)


class EndingsBody(Strict):
    endings: Annotated[list[EndingBody], Field(min_length=1, max_length=BLOCK_MAX)]


class ReservedNonce(BaseModel):
    request_id: str
    nonce: int
    hold: int
    status: Status
    fencing_token: int
    locked_until: datetime | None
    tx_hash: str | None

    @classmethod
    def of(cls, reservation: Reservation) -> ReservedNonce:
        return cls(
            request_id=reservation.request_id,
            nonce=reservation.nonce,
            hold=reservation.hold,
            status=reservation.status,
            fencing_token=reservation.fencing_token,
            locked_until=reservation.locked_until,
            tx_hash=reservation.tx_hash,
        )


class Reserved(BaseModel):
    nonces: list[ReservedNonce]


class Ended(BaseModel):
    """`refusal` says why the mark was refused; null when it was applied."""

    nonce: int
    refusal: str | None


class Endings(BaseModel):
    endings: list[Ended]


class Marked(BaseModel):
    chain_id: int
    signer: str
    nonce: int
    status: Status
