"""What an adapter may answer. A wrong answer to `submit` leaves the outcome unknown; elsewhere it is as good as no answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab_agent.errors import LisOutcomeUnknown, LisUnavailable
from lab_agent.ports.lis import SubmitResult

_MAX_ACCESSION_LENGTH = 200


def discard_result(value: object) -> None:
    """Take an answer that nobody needs."""


def check_submit_result(value: Any, adapter: str) -> SubmitResult:
    """Look at a receipt. Raises `LisOutcomeUnknown`: the order may well be in the LIS."""
    if not isinstance(value, SubmitResult):
        raise LisOutcomeUnknown(f"the adapter {adapter} answered submit with {type(value).__name__}, and not with a Receipt")
    whole = value.accession is None or _is_accession(value.accession)
    if not (whole and _are_accessions(value.line_accessions) and _are_accessions(value.tube_accessions)):
        raise LisOutcomeUnknown(f"the adapter {adapter} answered submit with a Receipt whose accessions are not short text")
    return value


def check_was_received(value: Any, adapter: str) -> bool | None:
    """Look at the answer of `was_received`. Raises `LisUnavailable`."""
    if value is None or isinstance(value, bool):
        return value
    raise LisUnavailable(f"the adapter {adapter} answered was_received with {type(value).__name__}, and not True, False or None")


def check_message_count(value: Any, adapter: str) -> int:
    """Look at the answer of `collect`. Raises `LisUnavailable`."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise LisUnavailable(f"the adapter {adapter} answered collect with {type(value).__name__}, and not with a number of messages")


def _are_accessions(given: Any) -> bool:
    return isinstance(given, Mapping) and all(isinstance(key, str) and _is_accession(value) for key, value in given.items())


def _is_accession(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value.strip()) <= _MAX_ACCESSION_LENGTH and value.isprintable()
