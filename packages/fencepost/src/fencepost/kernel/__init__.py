"""The truth: PostgreSQL functions in the schema `fencepost`, and one thin typed module a noun."""
