"""`lab-agent db upgrade`, killed with SIGKILL before each of its statements in turn, and at last not killed.

    python -m tests.harness.killed_upgrades URL FOLDER STEP

It prints a line of JSON for each statement that an upgrade was killed at, which is every `STEP`-th: the beginning of the
statement, and whether schema and content were as before. Each upgrade is a process of its own, forked off so that what it
imports is imported once. `FOLDER` is for the migrations of a version to come.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from alembic import command, script  # noqa: F401 - imported once, before the processes are forked off
from sqlalchemy import Engine, event

from lab_agent.store.schema import upgrade
from tests.harness.schemas import REBUILT, content, describe, next_schemas

_COMMIT = "COMMIT"


def kill_at(number: int, note: Callable[[str], object]) -> None:
    """Let this process be killed before its `number`-th statement; the commit counts as one, and what is after it as another."""
    reached = 0

    def reach(statement: str) -> None:
        nonlocal reached
        reached += 1
        if reached == number:
            note(statement)
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", lambda _connection, _cursor, statement, *_: reach(statement))
    event.listen(Engine, "commit", lambda _: reach(_COMMIT))


def run_forked(work: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        work()
        code = 0
    finally:
        sys.stdout.flush()
        os._exit(code)
    return code


def upgrade_killed(url: str, number: int, said: Path) -> str | None:
    """Upgrade in a process that is killed at its `number`-th statement; gives that statement, None if it came to its end."""

    def work() -> None:
        kill_at(number, said.write_text)
        upgrade(url)

    code = run_forked(work)
    if code not in (0, -signal.SIGKILL):
        raise SystemExit(f"the upgrade ended with {code}")
    return said.read_text() if code else None


def main() -> None:
    url, folder, step = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    said = folder / "statement"

    def look() -> str:
        path = folder / "look.json"
        if run_forked(lambda: path.write_text(repr((describe(url), content(url)))) and None):  # no connection is left open here
            raise SystemExit("the database cannot be read")
        return path.read_text()

    with next_schemas(folder, upto=REBUILT):
        before, number = look(), 1
        while (statement := upgrade_killed(url, number, said)) is not None:
            sys.stdout.write(json.dumps({"statement": statement[:60], "is_as_before": look() == before}) + "\n")
            number += step


if __name__ == "__main__":
    main()
