"""The programs that tests fork (`tests.harness.forked_programs`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.harness.clock import wait_until
from tests.harness.paths import ROOT

_STARTER = """
import sys, time
from pathlib import Path
from tests.harness import forked_programs
program = forked_programs.start("tests.harness.killed_lis", *sys.argv[1:], stdout=Path("/dev/null").open("w"))
print(program.pid, flush=True)
time.sleep(600)
"""


async def test_program_ends_with_a_test_process_that_is_killed(tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("orders", "results", "lis")]
    command = [sys.executable, "-c", _STARTER, *folders]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as starter:  # noqa: ASYNC220
        assert starter.stdout is not None
        program = Path("/proc") / starter.stdout.readline().strip()
        assert program.is_dir()
        starter.kill()

    async def ended() -> bool:
        return not program.exists()

    await wait_until(ended, "the end of the program")
