"""Whether a file has stopped changing: seen alike at two looks that are far enough apart."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab_agent.lis.folder.files import FileIdentity


@dataclass(slots=True)
class SettleTracker:
    """Remembers since when each file looks as it does. Times are seconds of a clock that never goes back."""

    settle: float
    _unchanged_since: dict[str, tuple[FileIdentity, float]] = field(default_factory=dict)
    _waiting_since: dict[str, float] = field(default_factory=dict)

    def is_settled(self, name: str, identity: FileIdentity, now: float) -> bool:
        """Whether the file has looked the same for long enough, by what was seen so far and now."""
        known, since = self._unchanged_since.get(name, (None, now))
        if known != identity:
            since = now
            self._unchanged_since[name] = (identity, now)
        return now - since >= self.settle

    def seconds_waiting(self, message: str, now: float) -> float:
        """Seconds since this message was first asked about."""
        return now - self._waiting_since.setdefault(message, now)

    def forget(self, *names: str) -> None:
        """Forget files or messages that were put away."""
        for name in names:
            self._unchanged_since.pop(name, None)
            self._waiting_since.pop(name, None)

    def keep_only(self, names: frozenset[str]) -> None:
        """Forget all files but these."""
        self._unchanged_since = {name: seen for name, seen in self._unchanged_since.items() if name in names}
