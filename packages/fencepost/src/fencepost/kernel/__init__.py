"""The kernel: PostgreSQL functions in the schema `fencepost`, and one thin typed module for each noun."""
