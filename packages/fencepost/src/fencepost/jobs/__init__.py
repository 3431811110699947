"""The job runtime: Redis dispatches, PostgreSQL holds the state."""
