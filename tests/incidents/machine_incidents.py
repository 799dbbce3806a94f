"""What goes wrong with the agent's process, its machine, its settings and its notifications."""

from __future__ import annotations

import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing

from lab_agent.operations.notification.planning import ALERT_AFTER_FAILURES
from lab_agent.shared.conditions.model import ConditionId
from tests.harness.clock import DEADLINE
from tests.harness.programs import free_port
from tests.incidents.catalogue_of_incidents import incident
from tests.incidents.laboratory import Laboratory, wait_for

NOT_IN_THE_AGENT = ("page", "readyz", "log", "alert")
"""What does not run cannot tell it."""
ATTEMPTS = 180.0
"""Seconds within which a channel has been tried so often that its failure is told; each pause is longer than the one before."""


@incident(ConditionId.AGENT_NOT_RUNNING, without=NOT_IN_THE_AGENT)
def agent_is_stopped(lab: Laboratory) -> Iterator[None]:
    lab.stop("agent")
    yield
    lab.start_agent()


@incident(ConditionId.AGENT_FROZEN, without=NOT_IN_THE_AGENT)
def agent_is_frozen(lab: Laboratory) -> Iterator[None]:
    lab.freeze("agent")
    yield
    lab.thaw("agent")


@incident(ConditionId.AGENT_STOOD_STILL, ends=False)
def agent_was_frozen_for_a_while(lab: Laboratory) -> Iterator[None]:
    lab.freeze("agent")
    time.sleep(4)
    lab.thaw("agent")
    yield


@incident(ConditionId.AGENT_PORT_TAKEN, "{status}", without=("page", "readyz", "alert"))
def port_of_the_status_page_is_taken(lab: Laboratory) -> Iterator[None]:
    lab.stop("agent")
    with socket.create_server(("127.0.0.1", lab.workspace.agent_config["status"]["port"])):
        lab.start("agent", wait=False)
        lab.programs.pop("agent").wait(DEADLINE)
        yield
    lab.start_agent()


def hold_unreadable(lab: Laboratory, key: str) -> Iterator[None]:
    """Let the database hold a value that the program never wrote, and none afterwards."""
    for statement in ("INSERT OR REPLACE INTO key_values (key, value) VALUES (?, '[')", "DELETE FROM key_values WHERE key = ?"):
        with closing(sqlite3.connect(lab.database, timeout=DEADLINE)) as connection, connection:
            connection.execute(statement, (key,))
        yield


@incident(ConditionId.AGENT_CANNOT_WORK, "restore", sample=True)
def record_of_a_restore_cannot_be_read(lab: Laboratory) -> Iterator[None]:
    yield from hold_unreadable(lab, "restoration")


@incident(ConditionId.AGENT_PART_FAILS, "reconcile")
def record_of_a_restored_service_cannot_be_read(lab: Laboratory) -> Iterator[None]:
    yield from hold_unreadable(lab, "exchange.restored")


@incident(ConditionId.DISK_LOW, "{store}", alone=True)
def disk_of_the_database_is_nearly_full(lab: Laboratory) -> Iterator[None]:
    lab.change_setting("monitoring", disk_reserve=10**18)
    yield
    lab.change_setting("monitoring", disk_reserve=1)


@incident(ConditionId.SETTINGS_READABLE_BY_OTHERS, "{settings}")
def settings_can_be_read_by_others(lab: Laboratory) -> Iterator[None]:
    lab.workspace.folder.chmod(0o755)
    lab.settings.parent.chmod(0o755)
    lab.settings.chmod(0o644)
    yield
    lab.settings.chmod(0o600)


@incident(ConditionId.SETTINGS_EQUAL_PORTS, "api.port, status.port")
def two_parts_have_one_port(lab: Laboratory) -> Iterator[None]:
    settings = lab.workspace.agent_config
    lab.change_setting("api", port=settings["status"]["port"])
    yield
    lab.change_setting("api", port=settings["api"]["port"])


@incident(ConditionId.SETTINGS_INVALID)
def settings_are_broken_at_a_reload(lab: Laboratory) -> Iterator[None]:
    for lease in ("long", 4):
        lab.set("worker", lease=lease)
        lab.reload()
        yield


@incident(ConditionId.BACKUP_OLD, settings={"backup": {"folder": "var", "max_age": 5}})
def there_is_no_backup(lab: Laboratory) -> Iterator[None]:
    """When the first one of a new database is due."""
    folder = lab.workspace.folder / "backups"
    folder.mkdir()
    lab.change_setting("backup", folder="backups")
    yield
    (folder / "lab-agent.db").write_bytes(b"a backup")


@incident(
    ConditionId.NOTIFICATION_FAILED,
    "webhook.chat",
    settings={"notify": {"first_after": 0.1}, "notify.webhook.chat": {"url": f"http://127.0.0.1:{free_port()}/hook"}},
    ends=False,
)
def chat_tool_cannot_be_reached(lab: Laboratory) -> Iterator[None]:
    lab.write_result_file("broken.json", "{ this is not JSON")
    wait_for(lambda: len(lab.logged("notification_failed")) >= ALERT_AFTER_FAILURES, "its attempts", ATTEMPTS)
    yield
