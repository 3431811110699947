"""Bugs that a torture must find: by what they do to effects, not by what they look like.

A bug is planted into the database of one system (an edit of a function), or into its processes (a mutant by
name, which `planted_nursery` switches on). Each names the faults that bring it out and the rules that see it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.isolation.planted_bug import Edit

ONCE = ("lost", "doubled")


@dataclass(frozen=True)
class TorturedBug:
    title: str
    system: str
    faults: tuple[str, ...]
    seen_by: Sequence[str]
    edits: tuple[Edit, ...] = ()
    mutant: str = ""
    points: tuple[str, ...] = ()
    quick: bool = field(default=False)


GALLERY = (
    TorturedBug(
        "the fence does not ask for the token",
        "leases",
        ("pause",),
        ("tokens grow", "linearizable", "order of a key", *ONCE),
        edits=(
            Edit("lease_fence", "and l.token = p_token for key share", "for key share"),
            Edit("_lease_verdict", "p_lease.token is distinct from p_token or ", ""),
        ),
    ),
    TorturedBug(
        "a takeover keeps the token",
        "leases",
        ("pause", "kill"),
        ("linearizable",),
        edits=(
            Edit(
                "_lease_try",
                "set token = greatest(l.token, (select f.floor from fencepost.token_floor f)) + 1, owner",
                "set token = l.token, owner",
            ),
        ),
        quick=True,
    ),
    TorturedBug(
        "a release deletes the row, and the token starts again",
        "leases",
        ("kill",),
        ("linearizable", "tokens grow"),
        edits=(
            Edit(
                "_lease_release_try",
                "update fencepost.lease l set owner = null, expires_at = "
                "greatest(l.acquired_at, least(l.expires_at, v_now))\n    where",
                "delete from fencepost.lease l where",
            ),
        ),
    ),
    TorturedBug(
        "a holder writes without its fence",
        "leases",
        ("pause",),
        ("tokens grow", "linearizable", "order of a key", *ONCE),
        mutant="writes without a fence",
    ),
    TorturedBug(
        "a holder takes unknown for failed",
        "leases",
        ("net-lost-reply",),
        ("doubled",),
        mutant="takes unknown for failed",
    ),
    TorturedBug(
        "a finish asks for no attempt and no owner",
        "jobs",
        ("stall",),
        ("one attempt", "one finishing write", "doubled", "lost"),
        points=("jobs.finish.before_fence", "jobs.finish_sync.before_fence", "jobs.settle.before_finish"),
        edits=(
            Edit("_job_finish", "and r.attempt = a.attempt and r.owner = p_owner", ""),
            Edit("_job_finish", "((r.expires_at > v_now", "((true or r.expires_at > v_now"),
            Edit("job_finish", "and r.attempt = p_attempt and r.owner = p_owner", ""),
            Edit("job_finish", "((r.expires_at > v_now", "((true or r.expires_at > v_now"),
            Edit(
                "job_fence",
                "r.job_id = p_id and r.attempt = p_attempt for key share",
                "r.job_id = p_id for key share",
            ),
            Edit("job_fence", "if v_holds is not true then", "if false then"),
        ),
    ),
    TorturedBug(
        "a lost job is not put back",
        "jobs",
        ("kill",),
        ("liveness", "lost"),
        edits=(
            Edit("job_reclaim", "where r.expires_at <= v_now - p_grace", "where false"),
            Edit("_job_take_over", "and r.expires_at <= v_now for update", "and false for update"),
        ),
    ),
    TorturedBug(
        "a job that is put back is forgotten",
        "jobs",
        ("kill",),
        ("lost",),
        edits=(
            Edit(
                "_job_put_back",
                "left(p_error, 2000) from gone g;",
                "left(p_error, 2000) from gone g where false;",
            ),
        ),
    ),
    TorturedBug(
        "the handler writes beside the finish",
        "jobs",
        ("crash", "kill"),
        ("doubled", "one attempt"),
        points=("jobs.finish.before_fence", "jobs.finish.before_commit"),
        mutant="effect beside the finish",
    ),
    TorturedBug(
        "the reconciler never recalls",
        "jobs",
        ("redis-wipe",),
        ("liveness", "lost"),
        mutant="reconciler that never recalls",
    ),
    TorturedBug(
        "a key that is asked too late",
        "players",
        ("kill", "crash"),
        ("doubled", "holds what was answered", "one answer"),
        edits=(Edit("_player_execute", "if outcome <> 'claimed' then", "if false then"),),
    ),
    TorturedBug(
        "only the first party of a transfer is written",
        "players",
        ("kill",),
        ("holds what was answered",),
        edits=(
            Edit(
                "_player_execute",
                "for v_party in select x from jsonb_array_elements(p_plan -> 'parties') x loop",
                "for v_party in select x from jsonb_array_elements(p_plan -> 'parties') x limit 1 loop",
            ),
        ),
    ),
    TorturedBug(
        "an order that is stuck is sent again without a question",
        "orders",
        ("crash",),
        ("doubled",),
        points=("outbox.after_delivery", "orders.after_send"),
        mutant="rewinds what is stuck",
    ),
    TorturedBug(
        "a 5xx is taken for a request that placed nothing",
        "orders",
        ("kill",),
        ("doubled",),
        mutant="retries after a 5xx",
    ),
    TorturedBug(
        "not there is taken for never there",
        "orders",
        ("kill",),
        ("doubled",),
        mutant="believes in absence",
    ),
    TorturedBug(
        "a gap is left where it is",
        "nonces",
        ("kill",),
        ("linearizable",),
        edits=(
            Edit(
                "_nonce_reserve", "limit cardinality(v_fresh) for no key update", "limit 0 for no key update"
            ),
        ),
    ),
    TorturedBug(
        "a nonce that is given out again has the number of its old hold",
        "nonces",
        ("kill",),
        ("doubled",),
        edits=(Edit("_nonce_reserve", "hold = a.hold + 1", "hold = a.hold"),),
    ),
    TorturedBug(
        "a commit of a flow is fenced by nothing",
        "flows",
        ("stall",),
        ("doubled", "order of a key", "lost", "unrequested"),
        points=("flows.commit.after_fence", "flows.commit.before_commit"),
        edits=(
            Edit("_checkpoint_fence", "perform fencepost.lease_fence(p_resource, p_token);", "null;"),
            Edit(
                "checkpoint_store",
                "v_newest.frontier is distinct from p_expected or v_newest.number > p_number",
                "false",
            ),
        ),
    ),
    TorturedBug(
        "the undo of a workflow is forgotten",
        "workflows",
        ("kill",),
        ("lost",),
        edits=(Edit("_job_ended", "perform fencepost._workflow_undo(p_ids, p_now);", "null;"),),
    ),
    TorturedBug(
        "all undo jobs of a workflow are due at once",
        "workflows",
        ("kill",),
        ("newest first",),
        edits=(
            Edit(
                "_workflow_undo",
                "case when v.is_newest then p_now else fencepost._batch_never() end",
                "p_now",
            ),
        ),
    ),
    TorturedBug(
        "an emission calls no workflow",
        "workflows",
        ("kill",),
        ("liveness", "lost"),
        edits=(Edit("event_emit", "set run_at = v_now", "set run_at = j.run_at"),),
    ),
    TorturedBug(
        "a step of a workflow is fenced by nothing",
        "workflows",
        ("stall",),
        ("tokens grow", "lost", "doubled", "one attempt"),
        points=("workflow.step.before_fence",),
        edits=(
            Edit("_step_fence", " and r.attempt = p_attempt for key share", " for key share"),
            Edit(
                "_step_fence",
                "not found or v_running.owner <> p_owner",
                "not found and v_running.owner <> p_owner",
            ),
            Edit(
                "job_fence",
                "r.job_id = p_id and r.attempt = p_attempt for key share",
                "r.job_id = p_id for key share",
            ),
            Edit("job_fence", "if v_holds is not true then", "if false then"),
        ),
    ),
)
