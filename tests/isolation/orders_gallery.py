"""Bugs that orders can have."""

from tests.isolation.planted_bug import Edit, PlantedBug

ORDERS = (
    PlantedBug(
        "an acceptance takes no lock on its key",
        "orders: an order and its repeat",
        (Edit("orders_accept", "not fencepost._idempotency_lock('orders', p_key)", "false"),),
    ),
    PlantedBug(
        "an acceptance does not compare the digests",
        "orders: two orders under one key",
        (Edit("orders_accept", "v_known.request_digest <> p_digest", "false"),),
    ),
    PlantedBug(
        "a take waits for what a person holds",
        "orders: a take meets a cancel",
        (Edit("_orders_due", "for update skip locked", "for update"),),
    ),
    PlantedBug(
        "a cancel does not look whether the order has left",
        "orders: a take meets a cancel",
        (
            Edit(
                "orders_cancel",
                "v_message.state not in ('queued', 'failed') or v_open is not null",
                "false",
            ),
        ),
    ),
    PlantedBug(
        "takes do not take turns at the throttle",
        "orders: two takes",
        (
            Edit("_orders_allowance", "for no key update", ""),
            Edit("_orders_allowance", "where b.broker = p_broker;\n  -- Half", "where false;\n  -- Half"),
        ),
    ),
    PlantedBug(
        "a decision is not held to the state that was seen",
        "orders: two persons decide about what is parked",
        (Edit("orders_resolve", "v_message.state <> p_expected", "false"),),
    ),
    PlantedBug(
        "a recovery leaves the take as it was",
        "orders: a settlement meets the recovery",
        (Edit("orders_recover", "take = o.take + 1, ", ""),),
    ),
    PlantedBug(
        "the settlement of an order does not compare the take",
        "orders: an answer meets a person who says again",
        (
            Edit("_orders_settle_sent", " and o.take = a.take and o.owner = p_owner", ""),
            Edit("_outbox_verdict", "p_message.take is distinct from p_take", "false"),
        ),
    ),
    PlantedBug(
        "what went silent is rewound instead of asked about",
        "orders: a late settlement meets the expiry",
        (Edit("orders_expire_takes", "'unknown', p_limit", "'queued', p_limit"),),
    ),
    PlantedBug(
        "refused credentials end every order that meets them",
        "orders: two refused credentials",
        (Edit("_orders_halt_unauthorized", " and b.halted_code is null", ""),),
    ),
    PlantedBug(
        "a question about what is parked leaves the take as it was",
        "orders: a question about what is parked meets a person",
        (Edit("orders_take_unknown", "for update skip locked", ""),),
    ),
    PlantedBug(
        "two may try one broker",
        "orders: two tries of a broker",
        (
            Edit(
                "orders_probe_take",
                "where b.broker = p_broker and fencepost._orders_probe_is_due(b, v_now);\n  if found",
                "where b.broker = p_broker;\n  if found",
            ),
        ),
    ),
    PlantedBug(
        "two may send one dead order again",
        "orders: two resend what is dead",
        (Edit("orders_resend", "where r.id = p_id for update", "where r.id = p_id"),),
    ),
    PlantedBug(
        "an older word is written over a newer one",
        "orders: a late word meets the next question",
        (Edit("orders_fill_settle", " when v_row.take <> v_asked.take then 'stale_attempt'", ""),),
    ),
    PlantedBug(
        "a transition is written without its line in the audit",
        "orders: a cancel meets the recovery",
        (
            Edit(
                "orders_recover",
                "perform fencepost._orders_audit(v_now, r, v_state, 'unknown', 'UNKNOWN', p_actor, null, "
                "'recovered from a backup')\n    from fencepost.orders_order r where r.id = v_id;",
                "",
            ),
        ),
    ),
    PlantedBug(
        "a batch of orders is settled in the caller's order",
        "orders: settlements of many orders around a renewal",
        (
            Edit(
                "orders_settle",
                "perform 1 from fencepost.outbox o where o.id = any (p_ids) order by o.id for update;",
                "",
            ),
            Edit("orders_settle", "and a.id <> all (v_sent) order by a.id", "and a.id <> all (v_sent)"),
        ),
    ),
)
