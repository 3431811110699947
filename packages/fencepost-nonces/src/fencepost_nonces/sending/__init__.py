"""Managed transactions: reserved, signed, stored, sent, followed, and replaced when they are stuck.

`_sender.py` advances them and keeps no state: each turn reads from the database how far each one has come, so
a node that takes a signer over goes on where the last one stopped.
"""
