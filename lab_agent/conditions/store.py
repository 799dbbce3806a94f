"""Conditions of our own database. What it cannot record itself is told by the process, and by `lab-agent check`."""

from __future__ import annotations

from functools import partial

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import Affected, Condition, Severity

_store = partial(
    Condition,
    severity=Severity.CRITICAL,
    affects="no order is accepted and no result is acknowledged until it works again; nothing is lost",
    affected=Affected.NOTHING,
    noticed="every unit of work, and a probe while one fails",
    opens="with the first failure",
    ends="with the next unit of work that succeeds",
    command="lab-agent check",
    is_unready=True,
)

STORE_CONDITIONS = (
    _store(
        id=ConditionId.STORE_UNREACHABLE,
        title="The database does not answer",
        cause="the server is down, or the way to it",
        mend="Start the database server; check `store.url`, its address, user and password.",
    ),
    _store(
        id=ConditionId.STORE_LOCKED,
        title="The database is locked by another program",
        cause="something holds a lock on its file: a backup tool, an open database browser",
        mend="End that program; take backups with `lab-agent db backup`, or a tool that uses SQLite's backup interface.",
    ),
    _store(
        id=ConditionId.STORE_DISK_FULL,
        title="The database's disk is full",
        cause="no more can be written to it",
        mend="Make room on that disk. Everything follows by itself.",
    ),
    _store(
        id=ConditionId.STORE_READ_ONLY,
        title="The database cannot be written",
        cause="its file, its folder or its disk is read-only",
        mend="Give the agent's user the right to write the file and its folder; check whether the disk was mounted read-only.",
    ),
    _store(
        id=ConditionId.STORE_DELETED,
        title="The database file was deleted or replaced",
        cause="the file at `store.url` is not the one that the agent opened",
        mend="Restore the file if it was moved away by mistake, then restart the agent. Do not create a new one.",
    ),
    _store(
        id=ConditionId.STORE_DAMAGED,
        title="The database is damaged",
        cause="SQLite says that its content is not valid",
        mend="Stop the agent, keep the file, check the disk, and restore the last backup.",
    ),
    _store(
        id=ConditionId.STORE_OTHER_KEY,
        title="The database was written with another encryption key",
        cause="none of `store.encryption_keys` fits",
        mend="Put the former key back as a further one in `store.encryption_keys`.",
    ),
    _store(
        id=ConditionId.STORE_OTHER_SCHEMA,
        title="The database has another schema than this program needs",
        cause="the program was replaced and the database not upgraded, or the other way round",
        mend="Upgrade the database, or install the program that fits.",
        command="lab-agent db upgrade",
    ),
    _store(
        id=ConditionId.STORE_SECOND_AGENT,
        title="Another agent works on this database",
        cause="two agents on one SQLite file: two services were started, or a copy of the machine runs",
        affects="this agent does not start its work; the other one does it",
        mend="Stop one of them. Several workers need PostgreSQL.",
    ),
)
