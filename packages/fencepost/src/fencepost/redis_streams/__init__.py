"""Redis: streams and wake-ups. It makes things prompt; everything in it can be rebuilt from PostgreSQL."""
