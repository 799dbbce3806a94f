"""The stand-in as a process: `lab-sandbox stand-in-lis`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from datetime import datetime

from lab_sandbox.demo.lis.link import Link, NoLink
from lab_sandbox.demo.lis.messages import Habits
from lab_sandbox.demo.lis.stand_in import Folders, StandIn


def local_now() -> datetime:
    """The time with this machine's offset."""
    return datetime.now().astimezone()


def work(
    folders: Folders,
    habits: Habits,
    link: Callable[[], Link] = NoLink,
    *,
    interval: float,
    patience: float,
    tell: Callable[[str], None],
) -> None:
    """Works until SIGTERM or SIGINT, a round every `interval` seconds."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    folders.make()
    stand_in, way = StandIn(folders, habits, patience, local_now), link()
    tell(f"working on {folders.orders} and {folders.results}")
    while not ended.is_set():
        for done in (*stand_in.turn(), *way.turn()):
            tell(done)
        ended.wait(interval)
    way.close()
