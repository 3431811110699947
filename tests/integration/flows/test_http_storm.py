"""An HTTP sink whose replies are lost: what fails is one request, and not the checkpoint."""

from collections import Counter

from fencepost.flows import Flow, IterableSource
from fencepost.flows.sinks.http import HttpSink
from tests.integration.flows.harness import FlowHarness
from tests.integration.flows.http_service import Answer, serving

VALUES = 2_000


async def test_lost_replies_cost_one_request_each(harness: FlowHarness) -> None:
    asked = [0]

    def every_two_hundredth(key: str, body: bytes) -> Answer:
        asked[0] += 1
        return Answer(lost=asked[0] % 200 == 7)

    with serving(every_two_hundredth) as service:
        flow = (
            Flow("storm")
            .source(IterableSource(list(range(VALUES))))
            .sink(HttpSink(service.url, honours_keys=True))
        )
        await harness.run(flow, records_max=VALUES, batch=VALUES)

    assert service.values == Counter(range(VALUES))
    lost = asked[0] // 200 + 1
    assert service.requests <= VALUES + lost
    assert {len(bodies) for bodies in service.bodies.values()} == {1}, "a key carried two bodies"
    assert service.connections <= 8 + lost, "connections were not kept"
