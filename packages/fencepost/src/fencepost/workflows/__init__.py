"""Durable workflows: jobs that remember their steps."""
