"""The Python side of a small service that adopts the pipeline."""

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from fencepost.kernel.call import Call, document, one, parsed
from fencepost_players.mutations.planning import Planned, Rng, mutation
from fencepost_players.mutations.store import Executed, Lookup, RequestContext


class AddSome(BaseModel):
    """Add by chance: one to six."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str


@dataclass(frozen=True)
class Addition:
    amount: int


def _name(request: AddSome) -> str:
    return request.name


@mutation("AddSome", needs=_name)
def add_some(snapshot: str, request: AddSome, rng: Rng) -> Addition:
    """Throw a die and add what it shows."""
    return Addition(1 + rng.below(6))


class CounterStore:
    """The calls of the counters."""

    service = "counters"

    def scope(self, user: str) -> str:
        return f"counter:{user}"

    def recall(self, context: RequestContext, needs: str) -> Lookup[str] | None:
        return None

    def look(self, context: RequestContext, needs: str) -> Call[Lookup[str]]:
        def read(outcome: str, response: str | None, version: int | None) -> Lookup[str]:
            return Lookup(outcome, parsed(response), version, needs)

        return Call(
            "select outcome, response::text, version"
            " from fencepost.counter_look(%s::text, %s::text, %s::text, %s::text)",
            (context.scope, context.key, context.digest, needs),
            one(read),
        )

    def execute(
        self, context: RequestContext, planned: Planned[Addition], version: int | None, *, keep: bool
    ) -> Call[Executed]:
        answer = {"added": planned.plan.amount}

        def read(outcome: str, response: str | None) -> Executed:
            return Executed(outcome, answer if outcome == "claimed" else parsed(response))

        return Call(
            "select outcome, response::text from fencepost.counter_add"
            "(%s::text, %s::text, %s::text, %s::jsonb, %s::text, %s::bigint, %s::bigint)",
            (
                context.scope,
                context.key,
                context.digest,
                document("answer", answer) if keep else None,
                context.user,
                version,
                planned.plan.amount,
            ),
            one(read),
        )
