"""What it costs to start, and how much memory `lab-agent run` has."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.child_process import ChildProcess, start_child
from benchmarks.measurement import Measurement, RunOptions
from benchmarks.workspace import ROOT, Workspace, make_workspace

_PROGRAM = str(Path(sys.executable).parent / "lab-agent")
_FLOOR = (sys.executable, "-c", "import fastapi, sqlmodel")
_MESSAGE = (
    "MSH|^~\\&|LIS|LAB|||20260302101500+0000||ORU^R01|1|P|2.5\rPID|1||77\r"
    "OBR|1||F1|CBC|||20260302090000+0000|||||||||||||||20260302101000+0000|||F\rOBX|1|NM|718-7^^LN||13.20||||||F\r"
)
"""A result that lacks nothing."""
_STEP = 100
"""Orders that come in at once."""
_MEGABYTE = 1_000_000
_DEADLINE = 600.0


def measure(options: RunOptions) -> list[Measurement]:
    """Measure two commands against the import of the two libraries, and the daemon's memory."""
    with TemporaryDirectory(prefix="lab-agent-benchmark-") as name, start_child(Path(name), "benchmarks.stub_service") as stub:
        workspace = make_workspace(Path(name), stub.greeting["base_url"], worker="poll_interval = 1\n")
        return [
            *_measure_commands(workspace, options.choose(2, 5)),
            *_measure_memory(workspace, stub, 5000 if options.large else options.choose(100, 500)),
        ]


def _measure_commands(workspace: Workspace, rounds: int) -> list[Measurement]:
    orders_list = (_PROGRAM, "orders", "list", "--config", str(workspace.settings_file))
    captured = workspace.folder / "captured.hl7"
    captured.write_text(_MESSAGE, newline="")
    tried = (_PROGRAM, "adapter", "hl7v2", "try", str(captured))
    for command in (orders_list, tried):
        _cpu_of(command)  # compiles what was not compiled yet
    found = [(_cpu_of(_FLOOR), _cpu_of((_PROGRAM, "--help")), _cpu_of(orders_list), _cpu_of(tried)) for _ in range(rounds)]
    floor, shown, listed, trial = (median(column) for column in zip(*found, strict=True))
    return [
        Measurement(name="import fastapi, sqlmodel", value=floor, unit="s of CPU"),
        Measurement(name="lab-agent --help", value=shown, unit="s of CPU"),
        Measurement(name="lab-agent --help / the imports", value=shown / floor, unit="", at_most=0.5),
        Measurement(name="lab-agent orders list", value=listed, unit="s of CPU"),
        Measurement(name="lab-agent orders list / the imports", value=listed / floor, unit="", at_most=1.1),
        Measurement(name="lab-agent adapter hl7v2 try", value=trial, unit="s of CPU", at_most=1.0),
    ]


def _measure_memory(workspace: Workspace, stub: ChildProcess, orders: int) -> list[Measurement]:
    with _running_daemon(workspace) as process:
        at_rest = _memory(process.pid, "VmRSS")
        for there in range(_STEP, orders + 1, _STEP):  # each poll lists all that are open
            stub.ask(offer=[1, there])
            _wait_until(lambda there=there: workspace.count_orders("handed_over") >= there, process)  # type: ignore[misc]
        after = _memory(process.pid, "VmHWM")
    return [
        Measurement(name="memory at rest", value=at_rest / _MEGABYTE, unit="MB", at_most=130),
        Measurement(name=f"most memory until {orders:,} orders", value=after / _MEGABYTE, unit="MB", at_most=150),
    ]


def _cpu_of(command: Sequence[str]) -> float:
    """CPU of a command, in seconds."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)  # noqa: S603 - our own commands
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} has ended with {process.returncode}")
    return used.ru_utime + used.ru_stime


@contextmanager
def _running_daemon(workspace: Workspace) -> Iterator[subprocess.Popen[bytes]]:
    """`lab-agent run`, from its first poll on."""
    log = workspace.folder / "daemon.log"
    command = (_PROGRAM, "run", "--config", str(workspace.settings_file))
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)  # noqa: S603 - our own program
        try:
            _wait_until(lambda: b"tokens.renewed" in log.read_bytes(), process)
            time.sleep(2)  # what it does at once after its start is done by then; nothing waits for this moment
            yield process
        finally:
            process.terminate()
            process.wait()


def _wait_until(reached: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _DEADLINE
    while not reached():
        if time.monotonic() > deadline or process.poll() is not None:
            raise RuntimeError("the daemon has ended, or does not get there")
        time.sleep(0.1)


def _memory(pid: int, field: str) -> int:
    """A field of the process's status, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) * 1024
