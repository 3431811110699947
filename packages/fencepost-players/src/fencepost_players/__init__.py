"""Players: what they hold changes once for each request, whatever is sent twice.

catalog.py       what there is in the game: items, heroes, pools, dungeons, lessons
requests.py      what a caller may ask for
plan.py          a plan: changes to one player or two
rules.py         the mutations, each declared once, pure
accounting.py    the database side: look and execute
recollection.py  what a node still knows, so that it need not look
    distributor.py   rewards inside somebody's own transaction
reading.py       players, inventories, histories, and the audit's check
service.py       all of it in one value
api.py           the same over HTTP: REST and Twirp
"""
