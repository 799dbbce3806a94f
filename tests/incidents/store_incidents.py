"""What goes wrong with the database. What cannot be written to it is told by the process, and by the commands."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from lab_agent.shared.conditions.model import ConditionId
from lab_agent.store.agent_lock import AgentLock
from lab_agent.store.crypto import new_key
from tests.harness.small_disk import fill, mounted_disk, remount_read_only
from tests.incidents.catalogue_of_incidents import incident
from tests.incidents.laboratory import Laboratory, wait_for

SMALL = 8192 * 1024
"""Bytes: the database and what lies beside it fit."""
UNWRITABLE = {"without": ("alert",), "alone": True}
"""Nothing in a database says that it cannot be written."""


@incident(ConditionId.STORE_DELETED, **UNWRITABLE)
def database_file_is_deleted(lab: Laboratory) -> Iterator[None]:
    lab.place_and_hand_over()
    for file in lab.database.parent.glob("lab-agent.db*"):
        file.unlink()
    yield


@incident(ConditionId.STORE_DELETED, **UNWRITABLE)
def database_file_is_replaced(lab: Laboratory) -> Iterator[None]:
    copy = lab.database.with_name("copy.db")
    shutil.copy(lab.database, copy)
    copy.rename(lab.database)
    yield


def release_once_compared(lab: Laboratory) -> None:
    def is_compared() -> bool:
        return bool(json.loads(lab.run("restored", "show", "--json").stdout)["compared_with_the_service"] != "not yet")

    wait_for(is_compared, "the open orders are compared")
    lab.run("restored", "release", "--yes").check_returncode()


@incident(ConditionId.STORE_RESTORED, affected=["1 unfinished order"], alone=True)
def database_was_restored_by_hand(lab: Laboratory) -> Iterator[None]:
    lab.place_and_hand_over()
    lab.stop("agent")
    mark = lab.database.with_name(f"{lab.database.name}.mark")
    reached = json.loads(mark.read_text())
    mark.write_text(json.dumps({**reached, "number": reached["number"] + 3}))  # the database is behind it
    lab.start_agent()
    yield
    release_once_compared(lab)


@incident(ConditionId.AGENT_SECOND_AGENT, alone=True)
def another_agent_has_reported(lab: Laboratory) -> Iterator[None]:
    """For the database of this one, which was put aside meanwhile, and without its mark."""
    order = lab.place_and_hand_over()
    lab.wait_until_logged("order_handed_over")
    lab.stop("agent")
    files = {each: each.read_bytes() for each in lab.database.parent.glob("lab-agent.db*") if not each.name.endswith(".mark")}
    lab.start_agent()
    lab.write_result(f"r-{order['key']}", order=order["key"], lines=[each["key"] for each in order["lines"]])
    wait_for(lambda: len(lab.logged("task_set")) > len(order["lines"]), "all Tasks have ended")
    lab.stop("agent")
    for each in lab.database.parent.glob("lab-agent.db*"):
        each.unlink()
    for each, content in files.items():
        each.write_bytes(content)
    lab.start_agent()
    yield
    release_once_compared(lab)


@incident(ConditionId.STORE_LOCKED, **UNWRITABLE)
def database_is_locked_by_a_browser(lab: Laboratory) -> Iterator[None]:
    with closing(sqlite3.connect(lab.database, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


@incident(ConditionId.STORE_DAMAGED, **UNWRITABLE)
def database_is_damaged(lab: Laboratory) -> Iterator[None]:
    lab.stop("agent")
    with lab.database.open("r+b") as file:
        size = file.seek(0, 2)
        for place in range(4096, size, 4096):
            file.seek(place)
            file.write(bytes(range(256)) * 16)
    lab.start_agent()
    yield


@incident(ConditionId.STORE_DISK_FULL, **UNWRITABLE)
def disk_of_the_database_is_full(lab: Laboratory) -> Iterator[None]:
    lab.stop("agent")
    with database_on_a_small_disk(lab) as folder:
        lab.start_agent()
        fill(folder)
        yield  # heartbeats are written all the time


@incident(ConditionId.STORE_READ_ONLY, **UNWRITABLE)
def disk_of_the_database_is_read_only(lab: Laboratory) -> Iterator[None]:
    lab.stop("agent")
    lab.stop("api")  # no disk becomes read-only while somebody writes to it
    with database_on_a_small_disk(lab) as folder:
        remount_read_only(folder)
        lab.start_agent()
        yield


@incident(ConditionId.STORE_SECOND_AGENT, **UNWRITABLE)
def another_agent_has_the_database(lab: Laboratory) -> Iterator[None]:
    lab.stop("agent")
    other = AgentLock(f"sqlite:///{lab.database}")
    other.acquire(datetime.now(UTC))
    lab.start_agent()
    yield
    other.release()


@incident(ConditionId.STORE_OTHER_KEY, **UNWRITABLE)
def encryption_key_is_another(lab: Laboratory) -> Iterator[None]:
    lab.stop("agent")
    lab.replace_setting(str(lab.workspace.agent_config["store"]["encryption_keys"][0]), new_key())
    lab.start_agent()
    yield


@incident(ConditionId.STORE_OTHER_SCHEMA, **UNWRITABLE)
def schema_is_another(lab: Laboratory) -> Iterator[None]:
    lab.stop("agent")
    with closing(sqlite3.connect(lab.database)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    lab.start_agent()
    yield


@incident(ConditionId.STORE_NEWER_SCHEMA)
def schema_is_newer_and_serves_this_program(lab: Laboratory) -> Iterator[None]:
    before = swap_versions(lab, "9999", None)
    yield
    swap_versions(lab, *before)


def swap_versions(lab: Laboratory, version: str, served: str | None) -> tuple[str, str]:
    """Write the version of the schema, and whom it serves (None: the program that made the former one); gives what was there."""
    with closing(sqlite3.connect(lab.database, timeout=20)) as connection, connection:
        (former,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        (other,) = connection.execute("SELECT value FROM key_values WHERE key = 'schema.oldest_program'").fetchone()
        served = served or json.dumps({"schema": version, "oldest_program": former})
        connection.execute("UPDATE key_values SET value = ? WHERE key = 'schema.oldest_program'", (served,))
        connection.execute("UPDATE alembic_version SET version_num = ?", (version,))
    return former, other


@contextmanager
def database_on_a_small_disk(lab: Laboratory) -> Iterator[Path]:
    """The folder of the database, and all that is in it, is on a disk of its own meanwhile."""
    folder = lab.database.parent
    with TemporaryDirectory() as aside:
        shutil.copytree(folder, aside, dirs_exist_ok=True)
        with mounted_disk(folder, SMALL):
            shutil.copytree(aside, folder, dirs_exist_ok=True)
            yield folder
