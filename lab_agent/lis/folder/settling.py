"""Whether a file has stopped changing: seen alike at two looks that are far enough apart."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab_agent.lis.folder.files import Identity


@dataclass(slots=True)
class Settling:
    """Remembers since when each file looks as it does. Times are seconds of a clock that never goes back."""

    settle: float
    _since: dict[str, tuple[Identity, float]] = field(default_factory=dict)
    _waiting: dict[str, float] = field(default_factory=dict)

    def settled(self, name: str, identity: Identity, now: float) -> bool:
        """Whether the file has looked the same for long enough, by what was seen so far and now."""
        known, since = self._since.get(name, (None, now))
        if known != identity:
            since = now
            self._since[name] = (identity, now)
        return now - since >= self.settle

    def waited(self, message: str, now: float) -> float:
        """Seconds since this message was first asked about."""
        return now - self._waiting.setdefault(message, now)

    def forget(self, *names: str) -> None:
        """Forget files or messages that were put away."""
        for name in names:
            self._since.pop(name, None)
            self._waiting.pop(name, None)

    def keep_only(self, names: frozenset[str]) -> None:
        """Forget all files but these."""
        self._since = {name: seen for name, seen in self._since.items() if name in names}
