"""The errors of nonces beside refusals.

FencepostError
├── SignerElsewhere          another node has the signer; `owner` names it, and `retry_seconds` when to ask
└── ServerUnavailable
    ├── ChainUnavailable     no endpoint of the chain answers
    │   └── ContradictingAnswers   its answers cannot all be true: ask again
    └── SigningFailed        the keystore or remote signer did not sign
"""

from __future__ import annotations

from fencepost.errors import FencepostError, ServerUnavailable
from fencepost_nonces.signer import Signer


class SignerElsewhere(FencepostError):
    """Another node has the signer. Nothing was written: ask that node, or ask again here."""

    def __init__(self, signer: Signer, owner: str | None, retry_seconds: float) -> None:
        super().__init__(
            f"{signer.resource} is held by {owner or 'another node'}. "
            f"Ask that node, or ask here again in {retry_seconds:g} s."
        )
        self.signer = signer
        self.owner = owner
        self.retry_seconds = retry_seconds


class ChainUnavailable(ServerUnavailable):
    """No endpoint of the chain answers."""


class ContradictingAnswers(ChainUnavailable):
    """What the chain's endpoints answer cannot all be true: one of them lags behind. Nothing is decided."""


class SigningFailed(ServerUnavailable):
    """The keystore or remote signer did not sign. Its reason is in its own log, never here."""
