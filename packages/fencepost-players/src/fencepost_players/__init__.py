"""Players: each request changes what a player holds once, even when it is sent twice.

catalog.py         the game's definitions: items, heroes, pools, dungeons, lessons
requests.py        what a caller may ask for
plan.py            a plan: changes to one player or two
rules.py           the mutations, each declared once, pure
player_store.py    the database side: look and execute
snapshot_cache.py  versions and definitions that a node caches, to skip the look
distributor.py     rewards inside the caller's own transaction
queries.py         players, inventories, histories, and the audit's check
service.py         all of it in one value
api.py             the same over HTTP: REST and Twirp
"""
