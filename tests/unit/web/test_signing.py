"""Cookies and forms that cannot be made up."""

from fencepost_server.web.signing import Signer, digest_of, new_secret

SEAL = Signer(b"k" * 32)


def test_what_was_signed_is_opened_and_nothing_else() -> None:
    cookie = SEAL.signed("a.b", purpose="session")
    assert SEAL.opened(cookie, purpose="session") == "a.b"
    assert SEAL.opened(cookie[:-1] + ("A" if cookie[-1] != "A" else "B"), purpose="session") is None
    assert SEAL.opened("b" + cookie[1:], purpose="session") is None
    assert SEAL.opened("a.b", purpose="session") is None
    assert SEAL.opened("", purpose="session") is None


def test_a_mark_for_one_purpose_or_by_another_key_is_worth_nothing() -> None:
    cookie = SEAL.signed("a", purpose="notice")
    assert SEAL.opened(cookie, purpose="session") is None
    assert Signer(b"x" * 32).opened(cookie, purpose="notice") is None


def test_a_forms_token_belongs_to_one_session() -> None:
    token = SEAL.form_token("mine")
    assert SEAL.is_form_token(token, "mine")
    assert not SEAL.is_form_token(token, "yours")
    assert not SEAL.is_form_token("", "mine")
    assert not SEAL.is_form_token("ü", "mine")


def test_secrets_differ_and_their_digests_tell_nothing() -> None:
    one, other = new_secret(), new_secret()
    assert one != other
    assert digest_of(one) != digest_of(other)
    assert one.encode() not in digest_of(one)
