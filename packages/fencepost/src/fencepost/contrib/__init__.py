"""Idempotent endpoints for web frameworks: one module for each, and none of them is a dependency."""
