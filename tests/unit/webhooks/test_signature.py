"""A receiver accepts what was signed for it, in time, and nothing else."""

import hashlib
import hmac

import pytest

from fencepost.webhooks import HEADER, InvalidSignature, sign, verify

BODY = b'{"event": "order.sent"}'
NOW = 1_800_000_000.0


def test_the_signature_is_what_the_documentation_says() -> None:
    expected = hmac.new(b"whsec_a", b"1800000000." + BODY, hashlib.sha256).hexdigest()

    assert sign(BODY, ["whsec_a"], at=NOW) == f"t=1800000000,v1={expected}"
    assert HEADER == "Fencepost-Signature"


@pytest.mark.parametrize("known", ["new", "old", ["other", "new"], ["old", ""]])
def test_either_secret_of_a_rotation_verifies(known: str | list[str]) -> None:
    verify(BODY, sign(BODY, ["new", "old"], at=NOW), known, now=NOW)


@pytest.mark.parametrize("seconds", [-301, 301])
def test_a_request_is_accepted_for_the_tolerance_only(seconds: float) -> None:
    signed = sign(BODY, ["a"], at=NOW)
    verify(BODY, signed, "a", now=NOW + seconds / 301 * 300)
    verify(BODY, signed, "a", now=NOW + seconds, tolerance_seconds=400)
    with pytest.raises(InvalidSignature, match="300 s old"):
        verify(BODY, signed, "a", now=NOW + seconds)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (None, "no time"),
        ("", "no time"),
        ("v1=00", "no time"),
        ("t=,v1=00", "no time"),
        ("t=²,v1=00", "no time"),
        ("t=-1,v1=00", "no time"),
        ("t=1800000000000,v1=00", "no time"),
        ("t=1800000000,t=1800000000,v1=00", "no time"),
        ("t=1800000000", "no signature"),
        ("t=1800000000,v1=ü", "no signature"),
        ("t=1800000000" + ",v1=00" * 17, "too many"),
        ("t=1800000000,v1=", "does not fit"),
        ("t=1800000000,v0=00,v1=00", "does not fit"),
    ],
)
def test_a_header_that_is_none_is_refused(header: str | None, why: str) -> None:
    with pytest.raises(InvalidSignature, match=why):
        verify(BODY, header, "a", now=NOW)


def test_another_body_another_time_and_another_secret_are_refused() -> None:
    signed = sign(BODY, ["a"], at=NOW)
    moved = signed.replace("t=1800000000", "t=1800000001")
    for body, header, secret in ((BODY + b" ", signed, "a"), (BODY, moved, "a"), (BODY, signed, "b")):
        with pytest.raises(InvalidSignature, match="does not fit"):
            verify(body, header, secret, now=NOW)


@pytest.mark.parametrize("nothing", ["", [], [""]])
def test_a_receiver_without_a_secret_accepts_nothing(nothing: str | list[str]) -> None:
    with pytest.raises(ValueError, match="not empty"):
        verify(BODY, sign(BODY, [""], at=NOW), nothing, now=NOW)


def test_signatures_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []
    right = hmac.compare_digest

    def compare(mine: str, given: str) -> bool:
        compared.append((mine, given))
        return right(mine, given)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    verify(BODY, sign(BODY, ["a", "b"], at=NOW), ["a", "c"], now=NOW)

    assert len(compared) == 4, "every pair, although the first one fits"
