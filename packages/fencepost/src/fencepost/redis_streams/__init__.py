"""Redis: streams and wake-ups. It reduces latency; everything in it can be rebuilt from PostgreSQL."""
