"""The settings of single sign-on are the same rules for each service, under its own names."""

import pytest

from fencepost.errors import InvalidInput
from fencepost.layered_settings import LayeredSettings
from fencepost_judge._settings import JudgeSettings
from fencepost_server.console._settings import ConsoleSettings

SERVICES = pytest.mark.parametrize(
    ("kind", "prefix", "roles"),
    [(ConsoleSettings, "CONSOLE", "ops=operator"), (JudgeSettings, "JUDGE", "staff=jury")],
    ids=["console", "judge"],
)


def load(
    kind: type[LayeredSettings], prefix: str, monkeypatch: pytest.MonkeyPatch, **more: str | None
) -> LayeredSettings:
    whole = {"OIDC_ISSUER": "https://id.example", "OIDC_CLIENT_ID": "us", "PUBLIC_URL": "https://us.example"}
    for name, value in {**whole, **more}.items():
        if value is not None:
            monkeypatch.setenv(f"{prefix}_{name}", value)
    return kind.load()


@SERVICES
@pytest.mark.parametrize(
    ("lacking", "named"),
    [
        ({"OIDC_CLIENT_ID": None}, "OIDC_CLIENT_ID"),
        ({"PUBLIC_URL": None}, "PUBLIC_URL"),
        ({"OIDC_ROLES": None}, "OIDC_ELSE_ROLE"),
        ({"OIDC_ISSUER": "http://id.example"}, "https://"),
        ({"OIDC_ISSUER": "https://us:secret@id.example"}, "password"),
        ({"OIDC_ROLES": "ops=king"}, "ROLES"),
    ],
)
def test_what_is_missing_or_unsafe_is_named(
    kind: type[LayeredSettings],
    prefix: str,
    roles: str,
    lacking: dict[str, str | None],
    named: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises((InvalidInput, ValueError, SystemExit), match=named):
        load(kind, prefix, monkeypatch, **{"OIDC_ROLES": roles, **lacking})


@SERVICES
def test_whole_settings_and_a_provider_on_this_machine_are_accepted(
    kind: type[LayeredSettings], prefix: str, roles: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(kind, prefix, monkeypatch, OIDC_ROLES=roles, OIDC_ISSUER="http://127.0.0.1:9000")
