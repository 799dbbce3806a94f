"""The names of a patient, and which of them counts (FHIR: HumanName, NameUse)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

_ANONYMOUS_DIGITS = 10
_USES_BY_PREFERENCE = ("official", "usual", None, "temp", "nickname", "anonymous", "maiden", "old")


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanName:
    """One name. `start` and `end` are the first ten characters of its period (year, month, day; days may be missing)."""

    where: str = "Patient.name[0]"
    use: str | None = None
    family: str | None = None
    given: tuple[str, ...] = ()
    text: str | None = None
    start: str | None = None
    end: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing."""
        return not (self.family or self.given or self.text)

    @property
    def is_anonymous(self) -> bool:
        """Whether this is the anonymous form: family of exactly ten digits, both given names `-` (interface: Patient)."""
        digits = self.family is not None and len(self.family) == _ANONYMOUS_DIGITS
        return digits and str(self.family).isascii() and str(self.family).isdigit() and self.given == ("-", "-")

    @property
    def comparison_key(self) -> tuple[str, ...]:
        """The parts without case and order: equal for a name in parts and the same name as text; empty for no name."""
        parts = (self.family or "", *self.given) if self.family or self.given else (self.text or "",)
        return tuple(sorted(" ".join(parts).casefold().split()))

    def is_current(self, on: date) -> bool:
        """Whether it is in use on that day: neither ended, nor called old, nor yet to come."""
        ended = self.end is not None and self.end < _as_precise_as(self.end, on)
        begun = self.start is None or self.start <= _as_precise_as(self.start, on)
        return begun and not ended and self.use != "old"


def choose_name(names: Sequence[HumanName], on: date) -> HumanName | None:
    """Choose the name that counts: one that is current, official before usual before others; None where there is none."""
    said = [name for name in names if not name.is_empty]
    return min(said, key=lambda name: (not name.is_current(on), _preference(name.use)), default=None)


def _preference(use: str | None) -> int:
    return _USES_BY_PREFERENCE.index(use if use in _USES_BY_PREFERENCE else None)


def _as_precise_as(text: str, on: date) -> str:
    return on.isoformat()[: len(text)]
