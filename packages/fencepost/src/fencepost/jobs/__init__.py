"""The job runtime: driven by Redis, true in PostgreSQL."""
