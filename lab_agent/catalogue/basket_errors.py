"""Collects what is wrong with a basket, and reads its fields leniently on the way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from lab_agent.shared.errors import BasketError, Problem

_MAX_LENGTH = 200
_TEXT_TYPES = (str, int, Decimal)
_WHOLE_NUMBER = re.compile(r"([0-9]+)\.0+")


@dataclass(frozen=True, slots=True)
class BasketProblem(Problem):
    """A problem of a basket; `code` is the FHIR issue type that fits it."""

    code: str = "invalid"


@dataclass(slots=True)
class BasketProblems:
    """The problems found so far."""

    collected: list[BasketProblem] = field(default_factory=list)

    def add(self, where: str, what: str, hint: str, code: str) -> None:
        """Add one problem."""
        self.collected.append(BasketProblem(where, what, hint, code))

    def single_error(self, where: str, what: str, hint: str, code: str) -> BasketError:
        """Make an error of one problem that hides all others."""
        return BasketError((BasketProblem(where, what, hint, code),))

    def to_error(self) -> BasketError:
        """Make the error that lists every problem."""
        return BasketError(tuple(self.collected))

    def raise_if_any(self) -> None:
        """Raise `BasketError` if anything was found."""
        if self.collected:
            raise self.to_error()

    def read_text(self, raw: Mapping[str, Any], name: str, where: str) -> str | None:
        """A code as text; None if it is missing, null or empty."""
        return self._to_text(raw.get(name), where)

    def read_codes(self, raw: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
        """One whole number, or an array of them (for items that take several biomaterial types); 13.0 is 13."""
        value = raw.get(name)
        if value is None:
            return ()
        many = value if isinstance(value, list) else [value]
        texts = [_strip_decimals(text) for each in many if (text := self._to_text(each, where)) is not None]
        return tuple(dict.fromkeys(texts))

    def read_flag(self, raw: Mapping[str, Any], name: str) -> bool:
        """A boolean; missing and null are false."""
        value = raw.get(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        self.add(name, "is not a boolean", "send true or false", "value")
        return False

    def _to_text(self, value: Any, where: str) -> str | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, _TEXT_TYPES):
            self.add(where, "is neither a string nor a number", "send the code as a string", "value")
            return None
        text = str(value).strip()
        if len(text) > _MAX_LENGTH:
            self.add(where, f"is longer than {_MAX_LENGTH} characters", "send the code of the nomenclature", "too-long")
            return None
        return text or None


def _strip_decimals(text: str) -> str:
    """A whole number without the decimals that a client's number type has added."""
    found = _WHOLE_NUMBER.fullmatch(text)
    return found[1] if found else text
