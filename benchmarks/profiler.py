"""Where the CPU of a process goes: the time that each thread has used since the last look counts for what it is doing now.

A thread that waits uses none, so that nothing has to be known of locks. What a library does counts for the package of ours that
called it; where none did (the event loop with its sockets, the HTTP library's callbacks), for the library.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from types import FrameType

_INTERVAL = 0.002
_OURS = ("lab_agent", "lab_api")
_LOOP = "event loop and sockets"


class Profiler:
    """Samples all threads of the process but its own."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Sample from now on."""
        self._seconds.clear()
        self._stopped.clear()
        self._thread = threading.Thread(target=self._sample, name="profiler", daemon=True)
        self._thread.start()

    def stop(self) -> dict[str, float]:
        """Seconds of CPU by package."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        return dict(self._seconds)

    def _sample(self) -> None:
        used: dict[int, float] = {}
        own = threading.get_ident()
        while not self._stopped.wait(_INTERVAL):
            for ident, frame in sys._current_frames().items():  # noqa: SLF001 - documented, for profilers
                if ident == own:
                    continue
                try:
                    now = time.clock_gettime(time.pthread_getcpuclockid(ident))
                except (OSError, ValueError):  # it has ended
                    continue
                self._seconds[_room(frame)] += now - used.get(ident, now)
                used[ident] = now


def _room(frame: FrameType | None) -> str:
    """The package that the innermost frame of ours is in, or the library if there is none."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        root, _, rest = name.partition(".")
        if root in _OURS:
            return f"{root}.{rest.partition('.')[0]}" if rest else root
        frame = frame.f_back
    return _LOOP
