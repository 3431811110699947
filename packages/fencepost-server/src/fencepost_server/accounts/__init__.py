"""Accounts: users, their roles in services, sessions, links, tokens, single sign-on and the audit.

A service that has users makes one `Accounts` (`calls.py`) with its name and its roles, and one `Sessions`
(`sessions.py`) on it. The database decides everything: `functions/account*.sql`.
"""
