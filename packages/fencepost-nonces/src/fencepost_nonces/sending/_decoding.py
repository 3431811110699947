"""Decodes signed bytes: their fees, and their fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hexbytes import HexBytes

from fencepost_nonces.sending._ethereum import V_OF_CHAIN, decode_list, typed_transactions
from fencepost_nonces.sending._fees import Fees

# EIP-2718: a typed transaction begins with its type, a legacy one with the head of its list.
LIST_HEAD_MIN = 0xC0
_LEGACY = ("nonce", "gasPrice", "gas", "to", "value", "data", "v", "r", "s")
_TEXTS = ("to", "data")


def fields_of(raw: bytes) -> Mapping[str, Any]:
    """The fields of a signed transaction, by the names of the signing request."""
    if not raw or raw[0] < LIST_HEAD_MIN:
        decoded: Mapping[str, Any] = typed_transactions().from_bytes(HexBytes(raw)).as_dict()
        return decoded
    items = decode_list(raw)
    named = dict(zip(_LEGACY, items, strict=True))
    read: dict[str, Any] = {
        name: item if name in _TEXTS else int.from_bytes(item, "big") for name, item in named.items()
    }
    return {**read, "chainId": (read["v"] - V_OF_CHAIN) // 2}


def fees_of(raw: bytes) -> Fees:
    """The fees of signed bytes: a replacement must offer a tenth more than exactly these."""
    fields = fields_of(raw)
    if "gasPrice" in fields:
        return Fees(int(fields["gasPrice"]), None)
    return Fees(int(fields["maxFeePerGas"]), int(fields["maxPriorityFeePerGas"]))
