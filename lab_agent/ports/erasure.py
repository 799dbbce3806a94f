"""Erasing what is stored of one patient; what keeps anything from being done twice stays."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from lab_agent.domain.ids import OrderKey, RefusedKey, ReportKey


class Erasure(Protocol):
    """Erases in the unit of work. What is in progress is the caller's to look at before."""

    def count_results(self, key: OrderKey) -> tuple[int, int]:
        """How many results of an order are not finished, and how many there are."""
        ...

    def order(self, key: OrderKey, empty_message: Callable[[bytes], bytes], *, at: datetime) -> int:
        """Erase all of an order but keys, states, times and codes; how many documents went.

        `empty_message` gives a stored message (`LabMessage`) without what it says of the patient.
        """
        ...

    def report(self, key: ReportKey, empty_message: Callable[[bytes], bytes]) -> None:
        """Erase the values of a result, and whose it is; its keys and its state stay."""
        ...

    def refused_message(self, key: RefusedKey) -> None:
        """Erase the raw text of a refused message, its history, and what people wrote about it."""
        ...
