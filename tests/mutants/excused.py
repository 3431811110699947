"""What the mutants cannot show, each with its reason."""

# Mutants that change nothing that a caller could see.
EXCUSED: dict[str, str] = {
    "_batch_count: without the conjunct: v_batch is not null and": "null is distinct from none: no",
    "checkpoint_commit: without the conjunct: and c.status = 'stored'": "what is committed keeps its time",
    "_rate_take: without the conjunct: and k.key = ''": "the bucket of a queue has no key",
    "_rate_take: without the conjunct: and k.key = '' (2)": "the same",
    "_job_claim: without the conjunct: and (w.concurrency_key is not null or w.queue in ("
    "…ere q.paused_at is not null))": "who goes the careful way without need comes to the same end",
    "_job_due: flipped: (v_ids) < p_limit then v_ids": "where nothing is missing, none are added",
    "claim_ordered: without the conjunct: m.slot = v_slice % 8 and (2)": "the slot follows from the key",
}

# RAISEs that the quick tests do not reach: the beginning of their message, and who does.
REACHED_ELSEWHERE = {
    "raise exception 'state has % bytes": "a state of 256 MB: kernel/test_checkpoint.py with --full",
}
