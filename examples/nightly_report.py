"""A nightly job that cron starts on every machine, and that happens on one of them, once a day.

    0 3 * * *  python examples/nightly_report.py

The lease lets one machine work. The fence keeps it out if it was paused past the end of its lease and comes
back late. The claim keeps the day from being done twice.
"""

import datetime
import sys

from fencepost import Claim, Fencepost, Lease, NotOwner, Refusal, SyncFencepost


def make_report(fp: SyncFencepost, held: Lease, day: datetime.date) -> Claim:
    lines = count_lines(fp)  # The long part, outside of any transaction.
    with fp.transaction() as tx:
        # From here to the commit no other process can take the lease over. If one has, this raises.
        fp.leases.fence(tx, held)
        claim = tx.claim("nightly-report", day.isoformat(), response={"lines": lines})
        if claim.claimed:
            tx.execute("insert into report (day, lines) values (%s, %s)", (day, lines))
        return claim


def count_lines(fp: SyncFencepost) -> int:
    with fp.transaction() as tx:
        row = tx.execute("select count(*) from inventory").fetchone()
        return int(row[0]) if row else 0


def main(day: datetime.date) -> None:
    with Fencepost.from_env().sync() as fp:
        try:
            held = fp.leases.acquire("nightly-report", ttl=datetime.timedelta(minutes=10))
        except NotOwner as refusal:
            print(f"{refusal.seen['owner']} is at it.")
            return
        try:
            claim = make_report(fp, held, day)
            print(f"{day}: {claim.response['lines']} lines, {'now' if claim.claimed else 'before'}.")
        except Refusal as refusal:
            print(f"Came too late: {refusal}")
        else:
            fp.leases.release(held)


if __name__ == "__main__":
    main(
        datetime.date.fromisoformat(sys.argv[1])
        if sys.argv[1:]
        else datetime.datetime.now(datetime.UTC).date()
    )
