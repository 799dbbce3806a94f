"""What a worker says of itself in the store, every few seconds and at its end: so that others see whether one lives."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """One run of `lab-agent run`, with its last heartbeat.

    `loop_lag_ms` is how late its event loop was at most since the heartbeat before, in milliseconds. Where that was long,
    `stalled_at` is when the process went on, and `stalled_ms` for how long it had stood still: the last such time stays.
    `ended_part` is the part of it that ended by itself, and `fault` the type of the error that it ended with. `stopped_at` is set
    once it has ended in order, `stopped_by` names the signal that asked for it; a process that was killed or lost its machine
    has neither.
    """

    name: str
    host: str
    pid: int
    version: str
    mode: str
    started_at: datetime
    beat_at: datetime
    loop_lag_ms: int = 0
    stalled_at: datetime | None = None
    stalled_ms: int = 0
    ended_part: str | None = None
    fault: str | None = None
    stopped_at: datetime | None = None
    stopped_by: str | None = None
