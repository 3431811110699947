"""The outbox's runtime: a relay that takes messages in batches, delivers them in parallel and settles
them."""
