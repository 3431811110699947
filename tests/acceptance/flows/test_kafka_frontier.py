"""Where a sink in Kafka stands, while a transaction of another task is open."""

import pytest

from fencepost.flows import CheckpointId
from fencepost.flows._errors import FlowError
from fencepost.flows.sinks import kafka as kafka_sinks
from fencepost.flows.sinks.kafka import KafkaSink
from tests.acceptance.flows import kafka_model
from tests.acceptance.flows.env import FlowsEnv

MINE, OTHER = "flow:x/group/0001", "flow:x/group/0002"


async def test_a_frontier_behind_an_open_transaction_is_not_taken_for_an_older_one(
    env: FlowsEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_sinks, "client_library", lambda: kafka_model)
    monkeypatch.setattr(kafka_sinks, "ANSWER_SECONDS", 0.5)
    config = {"bootstrap.servers": env.database.admin_url}
    first = KafkaSink("effects", config)
    await first.deliver(CheckpointId(MINE, 1, 1), ["k0-1"])
    frozen = kafka_model.Producer({**config, "transactional.id": f"fencepost-{OTHER}"})
    frozen.init_transactions(1)
    frozen.begin_transaction()
    frozen.produce("effects-frontier", b"1", key=OTHER, partition=0)
    await first.deliver(CheckpointId(MINE, 1, 2), ["k0-2"])

    with pytest.raises(FlowError, match="a transaction of another task is open"):
        await KafkaSink("effects", config).position(MINE)
    # Its successor takes that task over, and ends it.
    await KafkaSink("effects", config).position(OTHER)
    second = KafkaSink("effects", config)
    assert await second.position(MINE) == 2
    await second.deliver(CheckpointId(MINE, 2, 2), ["k0-2"])

    assert kafka_model.committed(env.database.admin_url, "effects") == ["k0-1", "k0-2"]
