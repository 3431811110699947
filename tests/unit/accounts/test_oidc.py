"""What is believed of an ID token, and what its claims mean here."""

import base64
import json
import time
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from joserfc import jwk, jws

from fencepost.errors import SettingsError
from fencepost_server.accounts._oidc import (
    ALGORITHMS,
    IdentityRefused,
    LoginState,
    Person,
    believed,
    person_of,
)
from fencepost_server.console._role import Role
from fencepost_server.console._settings import ConsoleSettings

ISSUER = "https://id.example"
KEY = jwk.RSAKey.generate_key(2048)
OTHER_KEY = jwk.RSAKey.generate_key(2048)
LOGIN_STATE = LoginState("state", "nonce", "verifier", "/console")
SETTINGS = ConsoleSettings(
    public_url="https://console.example",
    oidc_issuer=ISSUER,
    oidc_client_id="fencepost",
    oidc_roles={"ops": Role.OPERATOR, "chiefs": Role.ADMIN},
).oidc("/back")


def published(key: jwk.Key, **more: str) -> dict[str, Any]:
    return {**key.as_dict(private=False), **more}


def keys() -> dict[str, Any]:
    return {"keys": [published(KEY, kid="1", alg="RS256")]}


def signed(document: Any, key: jwk.Key = KEY, **head: Any) -> str:
    """With the key, whatever stands in it."""
    head = {"alg": "RS256", "kid": "1", **head}
    head = {name: value for name, value in head.items() if value is not None}
    registry = jws.JWSRegistry(algorithms=[str(head["alg"])], strict_check_header=False)
    return jws.serialize_compact(head, json.dumps(document).encode(), key, registry=registry)


def claims(**changes: Any) -> dict[str, Any]:
    now = int(time.time())
    whole = {"iss": ISSUER, "aud": "fencepost", "sub": "1", "iat": now, "exp": now + 300, "nonce": "nonce"}
    return {name: value for name, value in (whole | changes).items() if value is not None}


def believe(token: str, known: dict[str, Any] | None = None) -> dict[str, Any]:
    return dict(believed(token, known or keys(), SETTINGS, LOGIN_STATE))


def test_a_token_of_the_provider_for_us_and_this_login_is_believed() -> None:
    assert believe(signed(claims()))["sub"] == "1"
    # Without the name of a key, whose only key it is.
    assert believe(signed(claims(), kid=None))["sub"] == "1"
    # An issuer may end with a slash; an audience may be one of several; a header may have more in it.
    assert believe(signed(claims(iss=f"{ISSUER}/", aud=["fencepost", "other"]), rh="x"))["sub"] == "1"
    # Clocks differ by less than a minute.
    assert believe(signed(claims(exp=int(time.time()) - 50, iat=int(time.time()) + 50)))["sub"] == "1"


CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "EdDSA": "Ed25519", "Ed25519": "Ed25519"}


def key_for(algorithm: str) -> jwk.Key:
    if algorithm.startswith("ES"):
        return jwk.ECKey.generate_key(CURVES[algorithm])
    return jwk.OKPKey.generate_key("Ed25519") if algorithm in CURVES else KEY


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_signature_that_only_the_provider_can_make_is_believed(algorithm: str) -> None:
    key = key_for(algorithm)
    known = {"keys": [published(key, kid="1")]}
    assert believe(signed(claims(), key, alg=algorithm), known)["sub"] == "1"
    with pytest.raises(IdentityRefused):
        believe(signed(claims(), key, alg=algorithm)[:-8] + "AAAAAAAA", known)


def test_of_several_keys_the_named_one_counts_also_one_that_is_new() -> None:
    rotated = {"keys": [published(OTHER_KEY, kid="0"), {"kty": "new", "kid": "9"}, *keys()["keys"]]}
    assert believe(signed(claims()), rotated)["sub"] == "1"
    for wrong in (signed(claims(), kid="0"), signed(claims(), kid="9"), signed(claims(), kid=None)):
        with pytest.raises(IdentityRefused):
            believe(wrong, rotated)


@pytest.mark.parametrize("more", [{"use": "enc"}, {"alg": "RS512"}, {"key_ops": ["encrypt"]}])
def test_a_key_for_something_else_signs_nothing(more: dict[str, Any]) -> None:
    with pytest.raises(IdentityRefused):
        believe(signed(claims()), {"keys": [{**published(KEY, kid="1"), **more}]})


def test_a_header_that_must_be_understood_and_is_not_is_refused() -> None:
    with pytest.raises(IdentityRefused):
        believe(tampered_head({"alg": "RS256", "kid": "1", "crit": ["exp"], "exp": 1}))


def tampered_head(head: dict[str, Any]) -> str:
    """Signed as it stands: the library would not make it."""
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (head, claims())]
    assert KEY.private_key is not None
    signature = KEY.private_key.sign(b".".join(parts), padding.PKCS1v15(), hashes.SHA256())
    return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


@pytest.mark.parametrize(
    "wrong",
    [
        {"iss": "https://evil.example"},
        {"aud": "another client"},
        {"exp": int(time.time()) - 3600},
        {"exp": None},
        {"nonce": "of another login"},
        {"nonce": None},
        {"sub": None},
        {"iat": int(time.time()) + 3600},
        {"iat": None},
        {"nbf": int(time.time()) + 3600},
        {"aud": None},
        {"aud": []},
        {"iss": None},
        {"iss": f"{ISSUER}.evil.example"},
        {"exp": "tomorrow"},
        {"sub": 7},
    ],
)
def test_a_token_about_something_else_is_not(wrong: dict[str, Any]) -> None:
    with pytest.raises(IdentityRefused):
        believe(signed(claims(**wrong)))


def test_a_token_that_another_issuer_signed_is_refused() -> None:
    known = str(keys()["keys"][0]["n"])
    forged = [
        signed(claims(), OTHER_KEY),
        signed(claims(), OTHER_KEY, kid="2"),
        signed(claims(), OTHER_KEY, kid=None),
        "eyJhbGciOiJub25lIn0." + signed(claims()).split(".")[1] + ".",
        # With what everybody knows as a shared secret.
        signed(claims(), jwk.OctKey.import_key(known), alg="HS256"),
        "not.a.token",
        "",
    ]
    for token in forged:
        with pytest.raises(IdentityRefused):
            believe(token)


@pytest.mark.parametrize(
    ("said", "role"),
    [
        (["ops"], Role.OPERATOR),
        (["ops", "chiefs"], Role.ADMIN),
        ("chiefs", Role.ADMIN),
    ],
)
def test_the_best_group_counts(said: object, role: Role) -> None:
    person = person_of({"sub": "1", "email": "ada@house.example", "groups": said}, SETTINGS)
    assert person == Person("ada@house.example", "1", role)


@pytest.mark.parametrize("said", [[], ["guests"], None, 7, {"ops": True}, [["ops"]]])
def test_without_a_group_that_counts_no_caller_comes_in_unless_there_is_a_role_for_others(
    said: object,
) -> None:
    of_him = {"sub": "1", "email": "ada@house.example", "groups": said}
    with pytest.raises(IdentityRefused, match="groups"):
        person_of(of_him, SETTINGS)
    open_provider = replace(SETTINGS, else_role=Role.VIEWER)
    assert person_of(of_him, open_provider).role is Role.VIEWER


def test_a_person_without_a_name_is_refused() -> None:
    with pytest.raises(IdentityRefused, match="has no 'email'"):
        person_of({"sub": "1", "groups": ["ops"]}, SETTINGS)


@pytest.mark.parametrize(
    ("given", "user_error"),
    [
        ({"CONSOLE_OIDC_ISSUER": "http://id.example"}, "https://"),
        ({"CONSOLE_OIDC_ISSUER": ISSUER}, "CONSOLE_OIDC_CLIENT_ID"),
        (
            {
                "CONSOLE_OIDC_ISSUER": ISSUER,
                "CONSOLE_OIDC_CLIENT_ID": "x",
                "CONSOLE_PUBLIC_URL": "https://c.example",
            },
            "CONSOLE_OIDC_ROLES",
        ),
        ({"CONSOLE_OIDC_ROLES": "ops=emperor"}, "viewer, operator, admin"),
    ],
)
def test_half_a_setting_stops_the_start_and_says_what_is_missing(
    given: dict[str, str], user_error: str
) -> None:
    with pytest.raises(SettingsError, match=user_error):
        ConsoleSettings.load(given)


def test_groups_and_roles_are_pairs_in_the_environment() -> None:
    read = ConsoleSettings.load({"CONSOLE_OIDC_ROLES": "ops=operator, chiefs=admin"})
    assert read.oidc_roles == {"ops": Role.OPERATOR, "chiefs": Role.ADMIN}
