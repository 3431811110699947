"""A signer elsewhere: eth_accounts and eth_signTransaction over HTTP, as Web3Signer and Clef have them."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

Answer = Callable[[dict[str, Any]], Any]


class RemoteKeys:
    """Signs for one account. `answer` may be replaced: what it says instead of the signed bytes.

    `is_away`: it answers nothing.
    """

    def __init__(self, account: "LocalAccount") -> None:
        self.account = account
        self.asked: list[dict[str, Any]] = []
        self.answer: Answer = self.signed
        self.url = ""
        self.is_away = False

    def signed(self, wire: dict[str, Any]) -> Any:
        fields = {name: value for name, value in wire.items() if name != "from"}
        raw = self.account.sign_transaction(fields).raw_transaction
        return {"result": {"raw": "0x" + bytes(raw).hex()}}

    async def _serve(self, request: web.Request) -> web.Response:
        if self.is_away:
            raise web.HTTPBadGateway
        body: dict[str, Any] = await request.json()
        if body["method"] == "eth_accounts":
            return web.json_response({"result": [self.account.address]})
        self.asked.append(body["params"][0])
        return web.json_response(self.answer(body["params"][0]))

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[str]:
        application = web.Application()
        application.router.add_post("/", self._serve)
        runner = web.AppRunner(application)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            yield f"http://{host}:{port}"
        finally:
            await runner.cleanup()
