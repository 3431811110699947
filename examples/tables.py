"""The tables of the examples, made once by the owner of the database.

The services' own role may call the functions of Fencepost and write these tables, and nothing else.
"""

import psycopg

from fencepost.server_addresses import of_this_directory
from fencepost.settings import Settings

TABLES = """
    create table if not exists inventory (player integer not null, item text not null);
    create table if not exists report (day date primary key, lines integer not null);
    create table if not exists purchase (id serial primary key, customer text not null, euros int not null);
    grant select, insert, update on inventory, report, purchase to fencepost_app;
    grant usage on sequence purchase_id_seq to fencepost_app;
"""


def main() -> None:
    place = of_this_directory(Settings.load())
    with psycopg.connect(place.migration_url) as owner:
        owner.execute(TABLES)
    print("The tables are there.")


if __name__ == "__main__":
    main()
