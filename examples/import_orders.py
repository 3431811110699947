"""Orders arrive as CSV files in a folder. Each line is kept in a table, and a job sends one receipt for it,
whatever is killed on the way. Run it again whenever files have come:

    python examples/import_orders.py /data/orders

The row, the job and how far the files were read are one transaction.
"""

import asyncio
import sys
from collections.abc import Mapping

from fencepost import Fencepost, Job
from fencepost.flows import Flow
from fencepost.flows.sinks.jobs import JobSink
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.flows.sources.files import Csv, FolderFiles

fp = Fencepost.from_env()


@fp.job("mail")
async def send_receipt(job: Job, customer: str, euros: int) -> None:
    async with job.finish() as tx:
        await tx.execute("select %s::text, %s::int", (customer, euros))  # Your mail goes out here.


def receipt(row: Mapping[str, str]) -> dict[str, object]:
    return {"customer": row["customer"], "euros": int(row["euros"])}


def imports(folder: str) -> Flow:
    orders = Flow("import-orders").source(FolderFiles(folder, Csv(), pattern="*.csv", name="orders"))
    rows = orders.map(lambda row: (row["customer"], int(row["euros"])))
    kept = rows.sink(PostgresRows("purchase", ["customer", "euros"]))
    return kept.also(orders.sink(JobSink(send_receipt, receipt)))


async def main(folder: str) -> None:
    async with fp:
        await fp.flows.worker(imports(folder)).run(until_done=True)
        async with fp.transaction() as tx:
            rows = await tx.execute("select count(*), sum(euros) from purchase")
            [(orders, euros)] = await rows.fetchall()
    print(f"{orders} orders, {euros} euros")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
