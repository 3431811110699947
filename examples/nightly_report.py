"""A nightly job that cron starts on every machine, and that happens on one of them, once a day.

    0 3 * * *  python examples/nightly_report.py

The lease lets one machine work, and a thread renews it for as long as the work takes. The fence keeps the
machine out if it was paused past the end of its lease and comes back late. The claim keeps the day from being
done twice.
"""

import datetime
import sys

from fencepost import Claim, Fencepost, HeldLease, NotOwner, Refusal, SyncFencepost


def make_report(fp: SyncFencepost, held: HeldLease, day: datetime.date) -> Claim:
    lines = count_lines(fp)  # The long part, outside of any transaction.
    with fp.transaction() as tx:
        # From here to the commit no other process can take the lease over. If one has, this raises.
        held.fence(tx)
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
            with fp.lease("nightly-report", ttl=60) as held:
                claim = make_report(fp, held, day)
        except NotOwner as refusal:
            print(f"{refusal.seen['owner']} is at it.")
        except Refusal as refusal:
            print(f"Came too late: {refusal}")
        else:
            print(f"{day}: {claim.response['lines']} lines, {'now' if claim.claimed else 'before'}.")


if __name__ == "__main__":
    main(
        datetime.date.fromisoformat(sys.argv[1])
        if sys.argv[1:]
        else datetime.datetime.now(datetime.UTC).date()
    )
