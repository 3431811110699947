"""Coupons over HTTP."""

from fastapi import APIRouter

from coupons import calls
from fencepost import Fencepost
from fencepost_server.web.http_service import HttpService


def make_service(fp: Fencepost) -> HttpService:
    router = APIRouter(prefix="/coupons", tags=["coupons"])

    @router.post("/{code}/redeem")
    async def redeem(code: str, customer: str) -> dict[str, str]:
        """A second redemption is answered with 409 and the reason."""
        redeemed_at = await fp.run(calls.redeem(code, customer))
        return {"code": code, "redeemed_at": redeemed_at.isoformat()}

    return HttpService("coupons", router)
