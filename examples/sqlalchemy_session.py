"""A job submitted with the rows that it is about, in one SQLAlchemy session: both, or neither.

python examples/sqlalchemy_session.py
"""

import psycopg
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from fencepost import run
from fencepost.kernel import job
from fencepost.server_addresses import of_this_directory
from fencepost.settings import Settings


class Table(DeclarativeBase):
    pass


class Purchase(Table):
    __tablename__ = "purchase"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    euros: Mapped[int]


def buy(session: Session, customer: str, euros: int) -> int:
    with session.begin():
        purchase = Purchase(customer=customer, euros=euros)
        session.add(purchase)
        session.flush()
        if euros < 0:
            raise ValueError("A purchase is not negative.")
        # The same key again answers the job that is there: one letter for one purchase.
        key = f"letter:{purchase.id}"
        return run(
            session, job.submit("letters", "confirm", {"purchase": purchase.id}, unique_key=key)
        ).job_id


def main() -> None:
    url = of_this_directory(Settings.load()).service_url
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url))
    with Session(engine) as session:
        print("job", buy(session, "ann", 5))
        try:
            buy(session, "ben", -1)
        except ValueError as error:
            print("nothing:", error)
    with engine.connect() as connection:
        waiting = connection.exec_driver_sql(
            "select count(*) from fencepost.jobs where queue = 'letters'"
        ).scalar()
        bought = connection.exec_driver_sql("select count(*) from purchase").scalar()
        print(bought, "purchase,", waiting, "job")
    engine.dispose()


if __name__ == "__main__":
    main()
