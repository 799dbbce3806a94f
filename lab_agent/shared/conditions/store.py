"""Conditions of our own database. What it cannot record itself is told by the process, and by `lab-agent check`."""

from __future__ import annotations

from lab_agent.shared.conditions.model import Affected, Condition, ConditionId, Severity

_NOTHING_IS_TAKEN = (
    "no order is accepted and no result is acknowledged until it works again; what was acknowledged before is kept"
)
_EVERY_UNIT_OF_WORK = "every unit of work, and a probe every few seconds while one fails"
_AT_THE_FIRST = "with the first failure; it is told by the page and the log, and is an alert once it has ended"
_WHEN_IT_WORKS = "when a probe can read and write the database again"

STORE_CONDITIONS = (
    Condition(
        id=ConditionId.STORE_RESTORED,
        severity=Severity.CRITICAL,
        title="The database was restored, and waits for your decision",
        cause="it holds less than was done: a backup was put in its place, or a new database",
        affects=(
            "no order is handed over and none is cancelled at a laboratory system; nothing is uploaded until the open orders "
            "were compared with the service"
        ),
        affected=Affected.EVERYTHING,
        mend=(
            "Read what was found; have the results sent again that the laboratory has sent since the backup; then release the "
            "database. Each handover asks the laboratory system first (docs/restore.md)."
        ),
        command="lab-agent restored show",
        noticed="the database is compared with the mark beside it (`store.mark`)",
        opens="at the start, before anything is told to anybody",
        ends="when an operator releases it: `lab-agent restored release`",
    ),
    Condition(
        id=ConditionId.STORE_UNREACHABLE,
        severity=Severity.CRITICAL,
        title="The database does not answer",
        cause="the server is down or does not answer, the way to it is cut, or the disk reports errors",
        affects=_NOTHING_IS_TAKEN,
        affected=Affected.NOTHING,
        mend="Start the database server; check `store.url`, and the disk. Everything follows by itself.",
        command="lab-agent check",
        noticed=_EVERY_UNIT_OF_WORK,
        opens="with the first failure, or when PostgreSQL has not answered for four seconds; an alert once it has ended",
        ends=_WHEN_IT_WORKS,
        is_unready=True,
    ),
    Condition(
        id=ConditionId.STORE_LOCKED,
        severity=Severity.CRITICAL,
        title="The database is locked by another program",
        cause="something holds a lock on it: a backup tool, or an open database browser",
        affects=_NOTHING_IS_TAKEN,
        affected=Affected.NOTHING,
        mend="End that program (`lsof` on the database file names it). Back up with SQLite's `.backup`, which locks nobody out.",
        command="lab-agent check",
        noticed=_EVERY_UNIT_OF_WORK,
        opens="when a transaction has waited for three seconds, or a reader for two; an alert once it has ended",
        ends=_WHEN_IT_WORKS,
        is_unready=True,
    ),
    Condition(
        id=ConditionId.STORE_DISK_FULL,
        severity=Severity.CRITICAL,
        title="The database's disk is full",
        cause="no more can be written to it",
        affects=_NOTHING_IS_TAKEN,
        affected=Affected.NOTHING,
        mend="Make room on that disk. Everything follows by itself.",
        command="df -h",
        noticed=_EVERY_UNIT_OF_WORK,
        opens=_AT_THE_FIRST,
        ends=_WHEN_IT_WORKS,
        is_unready=True,
    ),
    Condition(
        id=ConditionId.STORE_READ_ONLY,
        severity=Severity.CRITICAL,
        title="The database cannot be written",
        cause="its file, its folder or its disk is read-only",
        affects=_NOTHING_IS_TAKEN,
        affected=Affected.NOTHING,
        mend="Give the agent's user the right to write the file and its folder; check whether the disk was mounted read-only.",
        command="lab-agent check",
        noticed=_EVERY_UNIT_OF_WORK,
        opens=_AT_THE_FIRST,
        ends=_WHEN_IT_WORKS,
        is_unready=True,
    ),
    Condition(
        id=ConditionId.STORE_DELETED,
        severity=Severity.CRITICAL,
        title="The database file is missing, or was replaced",
        cause="the file at `store.url` is not the one that the agent opened, or there is none",
        affects="no order is accepted and no result is acknowledged, so that nothing is lost with the deleted file",
        affected=Affected.NOTHING,
        mend=(
            "If it was moved, move it back with its -wal file: all follows by itself. If it was deleted, do not stop the agent: "
            "copy what it still has open (docs/operations.md, Deleted database files). Else stop it, and restore the last backup."
            " Create no new database in its place; only a new installation has none yet (`lab-agent db upgrade`)."
        ),
        command="lab-agent check",
        noticed="the files are compared with those that were opened, before and after each transaction",
        opens=_AT_THE_FIRST,
        ends="when the file that was opened is back; another one is taken at the next start",
        is_unready=True,
    ),
    Condition(
        id=ConditionId.STORE_LOG_DELETED,
        severity=Severity.CRITICAL,
        title="The write-ahead log of the database is missing, or was replaced",
        cause="the `-wal` file beside the database is not the one that the agent has open, or there is none",
        affects="no order is accepted and no result is acknowledged; what was acknowledged last may be in that log alone",
        affected=Affected.NOTHING,
        mend=(
            "If it was moved, move it back: all follows by itself. If it was deleted, do not stop the agent, and open the "
            "database with no other program: copy what the agent still has open (docs/operations.md, Deleted database files)."
        ),
        command="lab-agent check",
        noticed="the files are compared with those that were opened, before and after each transaction",
        opens=_AT_THE_FIRST,
        ends="when the log that was opened is back; or with the next start",
        is_unready=True,
    ),
    Condition(
        id=ConditionId.STORE_DAMAGED,
        severity=Severity.CRITICAL,
        title="The database is damaged",
        cause="SQLite says that its content is not valid",
        affects=_NOTHING_IS_TAKEN,
        affected=Affected.NOTHING,
        mend="Stop the agent, keep the file, check the disk, and restore the last backup.",
        command="systemctl stop lab-agent lab-api",
        noticed="every unit of work, and `lab-agent check`, which reads the whole file",
        opens=_AT_THE_FIRST,
        ends="when the whole file is found in order, which is tried every minute, or with the next start",
        is_unready=True,
    ),
    Condition(
        id=ConditionId.STORE_OTHER_KEY,
        severity=Severity.CRITICAL,
        title="The database was written with another encryption key",
        cause="none of `store.encryption_keys` fits",
        affects=_NOTHING_IS_TAKEN,
        affected=Affected.NOTHING,
        mend="Put the former key back as a further one in `store.encryption_keys`, and restart the agent.",
        command="lab-agent check",
        noticed="a check value is decrypted at the start, and every half minute",
        opens=_AT_THE_FIRST,
        ends=_WHEN_IT_WORKS,
        is_unready=True,
    ),
    Condition(
        id=ConditionId.STORE_OTHER_SCHEMA,
        severity=Severity.CRITICAL,
        title="The database has another schema than this program needs",
        cause="the program was replaced and the database not upgraded, or the other way round",
        affects=_NOTHING_IS_TAKEN,
        affected=Affected.NOTHING,
        mend="Upgrade the database, or install the program that fits and restart.",
        command="lab-agent db upgrade",
        noticed="the schema is compared at the start, and every half minute",
        opens=_AT_THE_FIRST,
        ends=_WHEN_IT_WORKS,
        is_unready=True,
    ),
    Condition(
        id=ConditionId.STORE_NEWER_SCHEMA,
        severity=Severity.NOTICE,
        title="The program is older than the schema of the database",
        cause="the database was upgraded for a newer version, and this machine still has the former one",
        affects="nothing: the schema serves the former version too",
        affected=Affected.NOTHING,
        mend="Install the newer version on this machine, and restart its programs.",
        noticed="the schema is compared at the start and every half minute",
        opens="when it is found",
        ends="when no agent on the machine is of the former version any more",
        subject="the machine, where several share a database (PostgreSQL)",
    ),
    Condition(
        id=ConditionId.STORE_SECOND_AGENT,
        severity=Severity.WARNING,
        title="Another agent works on this database",
        cause="two agents were started on one SQLite file",
        affects="nothing: the other one does the work, and this one takes over when that ends",
        affected=Affected.NOTHING,
        mend=(
            "Decide which one is to work. The log of the one that waits names host and process of both (`outage_started`), and "
            "`systemctl status PID`, on that host, the service that a process belongs to. Stop the other one there. Several "
            "workers need PostgreSQL."
        ),
        command="journalctl -u lab-agent --grep=store.second_agent",
        noticed="an agent holds a lock on a file beside the database as long as it lives",
        opens="at the start; told by the page of the agent that waits, and its log",
        ends="when the other agent has ended",
        is_unready=True,
    ),
)
