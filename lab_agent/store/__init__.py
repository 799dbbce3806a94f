"""The database: engine, sessions, units of work (`unit_of_work.py`), encryption, the queries of pages and commands, backups."""
