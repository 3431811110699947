"""A user's adapter is named in the settings, and orders go through it."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from fencepost.embedded import Database
from fencepost.errors import SettingsError
from fencepost_orders._settings import OrdersSettings
from fencepost_orders.brokers import make_brokers
from tests.integration.client.page import blocks
from tests.integration.orders.broker_env import open_floor

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "orders-own-broker.md"


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    """The page's own module in the working directory, and its own settings."""
    module, settings = blocks(PAGE)[:2]
    (tmp_path / module.file_name).write_text(module.body, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    brokers: dict[str, dict[str, str]] = yaml.safe_load(settings.body)["orders"]["brokers"]
    return brokers


async def test_an_order_goes_through_the_adapter_of_the_page(
    described: dict[str, dict[str, str]], database: Database
) -> None:
    settings = OrdersSettings.load({"ORDERS_BROKERS": json.dumps(described)})
    adapter = make_brokers(settings.brokers)["desk"].adapter

    async with open_floor(database.url, adapter) as floor:
        order_id = await floor.place("k1")
        sent = await floor.until_status(order_id, "sent")

    assert sent["broker_order_id"] == "north-1"


@pytest.mark.parametrize(
    ("adapter", "user_error"),
    [
        ("nothing", "module:name"),
        ("nowhere:Broker", "nowhere"),
        ("json:nothing", "nothing"),
        ("collections:OrderedDict", "has no declaration"),
    ],
)
def test_an_adapter_that_cannot_be_had_is_named(adapter: str, user_error: str) -> None:
    with pytest.raises(SettingsError, match=user_error) as caught:
        make_brokers({"desk": {"adapter": adapter}})
    assert "desk" in str(caught.value)
