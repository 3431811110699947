"""What is believed of an ID token, and what its claims mean here."""

import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from fencepost.errors import SettingsError
from fencepost_server.console.oidc import IdentityRefused, LoginState, Person, believed, person_of
from fencepost_server.console.role import Role
from fencepost_server.console.settings import ConsoleSettings

ISSUER = "https://id.example"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ERRAND = LoginState("state", "nonce", "verifier", "/console")
SETTINGS = ConsoleSettings(
    public_url="https://console.example",
    oidc_issuer=ISSUER,
    oidc_client_id="fencepost",
    oidc_roles={"ops": Role.OPERATOR, "chiefs": Role.ADMIN},
)


def keys() -> dict[str, Any]:
    return {"keys": [{**json.loads(RSAAlgorithm.to_jwk(KEY.public_key())), "kid": "1", "alg": "RS256"}]}


def claims(**changes: Any) -> dict[str, Any]:
    now = int(time.time())
    whole = {"iss": ISSUER, "aud": "fencepost", "sub": "1", "iat": now, "exp": now + 300, "nonce": "nonce"}
    return {name: value for name, value in (whole | changes).items() if value is not None}


def believe(token: str) -> dict[str, Any]:
    return dict(believed(token, keys(), SETTINGS, ISSUER, ERRAND))


def test_a_token_of_the_provider_for_us_and_this_login_is_believed() -> None:
    assert believe(jwt.encode(claims(), KEY, "RS256", headers={"kid": "1"}))["sub"] == "1"
    # Without the name of a key, whose only key it is.
    assert believe(jwt.encode(claims(), KEY, "RS256"))["sub"] == "1"


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
    ],
)
def test_a_token_about_something_else_is_not(wrong: dict[str, Any]) -> None:
    with pytest.raises(IdentityRefused):
        believe(jwt.encode(claims(**wrong), KEY, "RS256", headers={"kid": "1"}))


def test_a_token_that_somebody_else_signed_is_not() -> None:
    forged = [
        jwt.encode(claims(), OTHER_KEY, "RS256", headers={"kid": "1"}),
        jwt.encode(claims(), OTHER_KEY, "RS256", headers={"kid": "2"}),
        jwt.encode(claims(), "", "none"),
        # With what everybody knows as a shared secret.
        jwt.encode(claims(), str(keys()["keys"][0]["n"]), "HS256", headers={"kid": "1"}),
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
def test_the_best_of_his_groups_counts(said: object, role: Role) -> None:
    person = person_of({"sub": "1", "email": "ada@house.example", "groups": said}, SETTINGS)
    assert person == Person("ada@house.example", "1", role)


@pytest.mark.parametrize("said", [[], ["guests"], None, 7, {"ops": True}, [["ops"]]])
def test_without_a_group_that_counts_nobody_comes_in_unless_there_is_a_role_for_others(said: object) -> None:
    of_him = {"sub": "1", "email": "ada@house.example", "groups": said}
    with pytest.raises(IdentityRefused, match="groups"):
        person_of(of_him, SETTINGS)
    open_house = SETTINGS.model_copy(update={"oidc_else_role": Role.VIEWER})
    assert person_of(of_him, open_house).role is Role.VIEWER


def test_a_person_without_a_name_is_nobody() -> None:
    with pytest.raises(IdentityRefused, match="does not say 'email'"):
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
