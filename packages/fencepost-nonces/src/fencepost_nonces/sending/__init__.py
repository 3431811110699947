"""Managed transactions: reserved, signed, stored, sent, followed, and replaced when they are stuck.

`sender.py` moves them, and remembers nothing: each turn reads from the database how far each one has come, so
whoever takes a signer over goes on where the last one stopped.
"""
