"""`lab-agent run` as a process."""

import signal
import subprocess
import sys

import pytest

HANGS_UP_AT_ITS_START = """
import os, signal
from lab_agent import daemon
from lab_agent.cli import main

async def run(settings, config):
    os.kill(os.getpid(), signal.SIGHUP)
    print("lives")

daemon.run = run
main()
"""


@pytest.mark.slow
def test_early_sighup_does_not_end_daemon(lab):
    """A reload signal that comes before the handler is installed does not end the daemon."""
    command = [sys.executable, "-c", HANGS_UP_AT_ITS_START, "run", "--config", str(lab.config)]
    done = subprocess.run(command, cwd=lab.folder, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "lives\n"), (signal.SIGHUP, done.stderr)
