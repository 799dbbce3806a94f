"""What the status page is made of: everything it may look at or touch, handed in by whoever wires it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from lab_agent.accounts import Accounts
from lab_agent.crypto import Cipher
from lab_agent.metrics import Metrics
from lab_agent.ports.clock import Clock
from lab_agent.ports.store import Store
from lab_agent.ports.views import Queries
from lab_agent.settings.status import StatusSettings
from lab_agent.steps.match import ReportMatcher


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterStatus:
    """A laboratory system's adapter as the page shows it: loaded, or the `reason` why not."""

    name: str
    kind: str
    loaded: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusContext:
    """The parts that the status page works with. Whether neighbours are away stands in the store, as open alerts."""

    settings: StatusSettings
    store: Store
    queries: Queries
    accounts: Accounts
    cipher: Cipher
    metrics: Metrics
    clock: Clock
    adapters: Sequence[AdapterStatus]
    mode: Literal["normal", "observe"]
    create_matcher: Callable[[], ReportMatcher]
    """What matches results, with the mapping tables as they lie in their folder at the call."""
    missing_tasks: Callable[[], Sequence[str]]
    """Names of parts of the worker that should be running and are not; empty while all is well."""
    is_store_unwritable: Callable[[], bool]
    """Whether the store could not be written when the worker tried last, as with a full disk. It stands in no table."""
