"""What this distribution brings to Fencepost."""

from pathlib import Path

from fencepost.plugin import Plugin

PLUGIN = Plugin(
    name="coupons",
    about="coupons, each redeemed once",
    schemas={"coupons": Path(__file__).parent},
    commands={"coupons": "coupons.commands:app"},
    http_service="coupons.http_service:make_service",
)
