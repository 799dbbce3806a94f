"""What a rule cannot see in the order: the step gathers it first and freezes it, so that the rules stay pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lab_agent.domain.systems import CodeSystems


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The world at the time of judgement.

    `contract_ids` are the ids of Contract resources with their codes, `contracts` the configured codes. `labels_in_use`:
    barcode → patient references (`ReceivedOrder.patient_reference`) of other orders' lines that are not refused. `own_guid` is
    the laboratory's counterparty guid, where it is set. `label_pattern` is the regular expression of a well-formed barcode.
    """

    now: datetime
    systems: CodeSystems
    known_contracts: frozenset[str] = frozenset()
    contract_codes_by_id: Mapping[str, str] = field(default_factory=dict)
    labels_in_use: Mapping[str, frozenset[str]] = field(default_factory=dict)
    own_guid: str | None = None
    label_pattern: str = r"[0-9A-Za-z][0-9A-Za-z._\-]{2,29}"
    future_tolerance: timedelta = timedelta(minutes=15)
    alignment_tolerance: timedelta = timedelta(minutes=15)
