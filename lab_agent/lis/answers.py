"""What an adapter may answer. A wrong answer to `submit` leaves the outcome unknown; elsewhere it is as good as no answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab_agent.errors import LisOutcomeUnknown, LisUnavailable
from lab_agent.ports.lis import Receipt

_LONGEST_ACCESSION = 200


def nothing(given: object) -> None:
    """Take an answer that nobody needs."""


def receipt(given: Any, adapter: str) -> Receipt:
    """Look at a receipt. Raises `LisOutcomeUnknown`: the order may well be in the LIS."""
    if not isinstance(given, Receipt):
        raise LisOutcomeUnknown(f"the adapter {adapter} answered submit with {type(given).__name__}, and not with a Receipt")
    whole = given.accession is None or _number(given.accession)
    if not (whole and _numbers(given.line_accessions) and _numbers(given.tube_accessions)):
        raise LisOutcomeUnknown(f"the adapter {adapter} answered submit with a Receipt whose accessions are not short text")
    return given


def yes_no_unknown(given: Any, adapter: str) -> bool | None:
    """Look at the answer of `was_received`. Raises `LisUnavailable`."""
    if given is None or isinstance(given, bool):
        return given
    raise LisUnavailable(f"the adapter {adapter} answered was_received with {type(given).__name__}, and not True, False or None")


def count(given: Any, adapter: str) -> int:
    """Look at the answer of `collect`. Raises `LisUnavailable`."""
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    raise LisUnavailable(f"the adapter {adapter} answered collect with {type(given).__name__}, and not with a number of messages")


def _numbers(given: Any) -> bool:
    return isinstance(given, Mapping) and all(isinstance(key, str) and _number(value) for key, value in given.items())


def _number(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value.strip()) <= _LONGEST_ACCESSION and value.isprintable()
