"""A call sees what a session has not written yet, unless its user has said no_autoflush."""

import pytest
from sqlalchemy import NullPool, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from fencepost import Call, run
from fencepost.embedded import Database
from fencepost.kernel.call import scalar

NOTES = Call("select count(*) from note", (), scalar)


class Base(DeclarativeBase):
    pass


class Note(Base):
    """The table that the databases of this folder begin with."""

    __tablename__ = "note"
    word: Mapped[str] = mapped_column(primary_key=True)


@pytest.fixture
def address(database: Database) -> str:
    return database.url.replace("postgresql://", "postgresql+psycopg://", 1)


def test_of_a_session(address: str) -> None:
    with Session(create_engine(address, poolclass=NullPool)) as session:
        session.add(Note(word="a"))
        with session.no_autoflush:
            assert run(session, NOTES) == 0
        assert run(session, NOTES) == 1


async def test_of_an_async_session(address: str) -> None:
    async with AsyncSession(create_async_engine(address, poolclass=NullPool)) as session:
        session.add(Note(word="a"))
        with session.no_autoflush:
            assert await run(session, NOTES) == 0
        assert await run(session, NOTES) == 1
