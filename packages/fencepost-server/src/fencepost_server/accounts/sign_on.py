"""Single sign-on of a service: a browser is sent to the provider, and comes back with an identity."""

from __future__ import annotations

import secrets
from typing import Generic

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from fencepost.client import Fencepost
from fencepost.errors import InvalidInput
from fencepost.logs import get_logger
from fencepost_server.accounts._oidc import IdentityRefused, LoginState, OidcProvider
from fencepost_server.accounts._oidc_settings import OidcSettings
from fencepost_server.accounts.calls import Accounts
from fencepost_server.accounts.role import R
from fencepost_server.accounts.sessions import Sessions
from fencepost_server.web.forms import address_of
from fencepost_server.web.templating import HEADERS

_log = get_logger(__name__)
LOGIN_STATE_SECONDS = 600.0
_LOGIN_STATE = "login_state"
_REFUSED = {
    "disabled": "This account is disabled.",
    "name_taken": "Another account has this name.",
}


class SignOnRefused(Exception):
    """The provider does not vouch for this person, or the account is refused. The text may be shown."""


class SignOn(Generic[R]):
    def __init__(
        self, fp: Fencepost, accounts: Accounts[R], sessions: Sessions[R], settings: OidcSettings[R]
    ) -> None:
        self._fp = fp
        self._accounts = accounts
        self._sessions = sessions
        self._provider = OidcProvider(settings)

    async def leave(self, request: Request, wanted: str) -> Response:
        """Send the browser to the provider; it will come back to `wanted`."""
        begun = LoginState.new(wanted)
        try:
            address = await self._provider.address(begun)
        except IdentityRefused as error:
            raise self._refused(request, str(error)) from None
        response = RedirectResponse(address, 303, headers=dict(HEADERS))
        self._sessions.cookies.keep(request, response, _LOGIN_STATE, begun.written(), LOGIN_STATE_SECONDS)
        return response

    async def come_back(self, request: Request, code: str, state: str) -> Response:
        """Begin a session for the user that the provider names, if this browser was sent there by us."""
        carried = self._sessions.cookies.kept(request, _LOGIN_STATE, LOGIN_STATE_SECONDS)
        begun = None if carried is None else LoginState.read(carried)
        if begun is None or not secrets.compare_digest(begun.state.encode(), state.encode()):
            raise self._refused(request, "This login was not begun here, or it took too long.")
        try:
            person = await self._provider.person(code, begun)
            known = await self._fp.run(
                self._accounts.sign_on(
                    person.name,
                    person.role,
                    issuer=self._provider.issuer,
                    subject=person.subject,
                    address=address_of(request),
                )
            )
        except (IdentityRefused, InvalidInput) as error:
            raise self._refused(request, str(error)) from None
        if known.refused is not None:
            raise self._refused(request, _REFUSED[known.refused])
        response = RedirectResponse(begun.next, 303, headers=dict(HEADERS))
        self._sessions.cookies.delete(request, response, _LOGIN_STATE)
        await self._sessions.begin(request, response, known.name)
        return response

    @staticmethod
    def _refused(request: Request, why: str) -> SignOnRefused:
        _log.warning("sign_on_refused", reason=why, address=address_of(request))
        return SignOnRefused(f"{why} Log in again, or ask an administrator.")
