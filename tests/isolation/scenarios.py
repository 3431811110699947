"""All scenarios, by the name under which a test plays them."""

from collections.abc import Iterable, Mapping

from tests.isolation import (
    checkpoint_pairs,
    checkpoint_stories,
    flow_pairs,
    idempotency_pairs,
    idempotency_stories,
    job_batch_pairs,
    job_features,
    job_fence_stories,
    job_key_pairs,
    job_lost_pairs,
    job_pairs,
    job_running_pairs,
    job_stories,
    lease_pairs,
    lease_stories,
    orders_pairs,
    outbox_pairs,
    outbox_stories,
    triangles,
    workflow_pairs,
)
from tests.isolation.pairs import Pair
from tests.isolation.scenario import Scenario

_PAIRS: Mapping[str, Iterable[Pair]] = {
    "lease": lease_pairs.PAIRS,
    "idempotency": idempotency_pairs.PAIRS,
    "outbox": outbox_pairs.PAIRS,
    "job": job_pairs.PAIRS,
    "running job": job_running_pairs.PAIRS,
    "lost job": job_lost_pairs.PAIRS,
    "jobs": (*job_key_pairs.PAIRS, *job_batch_pairs.PAIRS, *job_features.PAIRS),
    "checkpoint": checkpoint_pairs.PAIRS,
    "orders": orders_pairs.PAIRS,
    "flow": flow_pairs.PAIRS,
    "workflow": workflow_pairs.PAIRS,
}
_STORIES: Mapping[str, Iterable[Scenario]] = {
    "lease": (*lease_stories.STORIES, *triangles.LEASES),
    "idempotency": idempotency_stories.STORIES,
    "outbox": (*outbox_stories.STORIES, *triangles.OUTBOX),
    "job": job_stories.STORIES,
    "running job": job_fence_stories.STORIES,
    "jobs": (*job_features.STORIES, *triangles.JOBS),
    "checkpoint": checkpoint_stories.STORIES,
    "orders": orders_pairs.TRIANGLES,
    "workflow": workflow_pairs.STORIES,
}


def pairs() -> dict[str, Pair]:
    return {f"{noun}: {pair.title}": pair for noun, of_noun in _PAIRS.items() for pair in of_noun}


def scenarios() -> dict[str, tuple[Scenario, ...]]:
    """Each name with its scenarios: a pair has one for every way in which its transactions can end."""
    of_pairs = {name: tuple(pair.scenarios()) for name, pair in pairs().items()}
    of_stories = {
        f"{noun}: {story.title}": (story,) for noun, stories in _STORIES.items() for story in stories
    }
    assert not of_pairs.keys() & of_stories.keys(), "a name is used twice"
    return of_pairs | of_stories
