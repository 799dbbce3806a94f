"""The stand-in as a process: `lab-sandbox stand-in-lis`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from datetime import datetime

from lab_sandbox.demo.lis.link import FolderTransport, LisTransport
from lab_sandbox.demo.lis.messages import SimulatorBehaviour
from lab_sandbox.demo.lis.stand_in import LisSimulator, SimulatorFolders


def local_now() -> datetime:
    """The time with this machine's offset."""
    return datetime.now().astimezone()


def run_simulator(
    folders: SimulatorFolders,
    behaviour: SimulatorBehaviour,
    open_transport: Callable[[], LisTransport] = FolderTransport,
    *,
    interval: float,
    stage_timeout: float,
    print_line: Callable[[str], None],
) -> None:
    """Works until SIGTERM or SIGINT, a round every `interval` seconds."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    folders.create()
    stand_in, way = LisSimulator(folders, behaviour, stage_timeout, local_now), open_transport()
    print_line(f"working on {folders.orders} and {folders.results}")
    while not ended.is_set():
        for done in (*stand_in.run_once(), *way.run_once()):
            print_line(done)
        ended.wait(interval)
    way.close()
