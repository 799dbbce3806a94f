"""The URLs of code systems, written exactly as the interface writes them and compared with tolerance.

The interface writes `{base_url}terminology/…` without and `{lab_codes_url}/…` with a slash between, and spells the specimen type
in two ways. Slashes, case, scheme and `-`/`_` are ignored when a received system is compared, so that a spelling mistake is a
warning and only a foreign system is an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache

_MAX_KEPT_LENGTH = 300
_SCHEME_PATTERN = re.compile(r"[a-z][a-z0-9+.-]*:/+")


class SystemMatch(StrEnum):
    """How a code system as received compares with the one that the interface names."""

    EXACT = "exact"
    SPELLED_DIFFERENTLY = "spelled_differently"
    MISSING = "missing"
    FOREIGN = "foreign"


_RANKS = {match: rank for rank, match in enumerate(SystemMatch)}


@dataclass(frozen=True)
class CodeSystem:
    """One code system: its `url` as the interface names it, and the `suffix` of that after the installation's own address."""

    url: str
    suffix: str

    def match(self, received: str | None) -> SystemMatch:
        """Compare with a system as received; one with the same suffix after another address counts as spelled differently."""
        if received is None or not received.strip():
            return SystemMatch.MISSING
        if received == self.url:
            return SystemMatch.EXACT
        found, (own, suffix) = _segments(received), self._own_segments
        same_suffix = bool(suffix) and found[-len(suffix) :] == suffix
        return SystemMatch.SPELLED_DIFFERENTLY if same_suffix or "".join(found) == own else SystemMatch.FOREIGN

    def rank(self, received: str | None) -> int:
        """How well a system as received fits: 0 for an exact one, then in the order of `SystemMatch`."""
        return _RANKS[self.match(received)]

    @cached_property
    def _own_segments(self) -> tuple[str, tuple[str, ...]]:
        return "".join(_segments(self.url)), _segments(self.suffix)


@dataclass(frozen=True, kw_only=True)
class CodeSystems:
    """The installation's addresses, from which every code system is derived, once (interface: preamble)."""

    base_url: str
    lab_codes_url: str
    second_labels_system: str | None = None

    def _service_system(self, suffix: str) -> CodeSystem:
        return CodeSystem(f"{self.base_url.rstrip('/')}/{suffix}", suffix)

    def _laboratory_system(self, suffix: str) -> CodeSystem:
        return CodeSystem(f"{self.lab_codes_url.rstrip('/')}/{suffix}", suffix)

    @cached_property
    def nomenclature(self) -> CodeSystem:
        """Codes of the tests."""
        return self._service_system("terminology/nomenclature")

    @cached_property
    def task_type(self) -> CodeSystem:
        """Codes of the order-level Task."""
        return self._service_system("terminology/task_type")

    @cached_property
    def specimen_type(self) -> CodeSystem:
        """Codes of biomaterials (Specimen.type)."""
        return self._service_system("terminology/specimen-type")

    @cached_property
    def container_type(self) -> CodeSystem:
        """Codes of containers (Specimen.container.type), spelled with an underscore in the interface."""
        return self._service_system("terminology/specimen_type")

    @cached_property
    def method(self) -> CodeSystem:
        """Collection methods (Specimen.collection.method)."""
        return self._service_system("terminology/treatment_protocol")

    @cached_property
    def supporting_info(self) -> CodeSystem:
        """The URL of the Specimen's extension."""
        return self._service_system("extra/supportingInfo")

    @cached_property
    def contract(self) -> CodeSystem:
        """Contract codes."""
        return self._laboratory_system("contract")

    @cached_property
    def labels(self) -> CodeSystem:
        """Barcodes of containers."""
        return self._laboratory_system("labels")

    @cached_property
    def second_labels(self) -> CodeSystem | None:
        """Second barcodes of the two-barcode studies; None if the installation has set no system for them."""
        return CodeSystem(self.second_labels_system, "") if self.second_labels_system else None

    @cached_property
    def patients(self) -> str:
        """The system of the Patients' ids on the service, as an assigning authority for the laboratory's own software."""
        return self._service_system("fhir/Patient").url

    @cached_property
    def notification(self) -> CodeSystem:
        """Notification options (Task.input)."""
        return self._laboratory_system("notification")

    @cached_property
    def old_orders(self) -> CodeSystem:
        """Old order numbers (ProcedureRequest.basedOn); another address that ends alike is another laboratory's."""
        return CodeSystem(self._laboratory_system("mis").url, "")


def _segments(address: str) -> tuple[str, ...]:
    """The parts between the slashes of an address, in one spelling."""
    return _known_segments(address) if len(address) <= _MAX_KEPT_LENGTH else _split(address)


@lru_cache(maxsize=512)
def _known_segments(address: str) -> tuple[str, ...]:
    """Kept for the last 512 addresses: each order repeats the same dozen, some fifty times."""
    return _split(address)


def _split(address: str) -> tuple[str, ...]:
    spelled = address.strip().casefold()
    scheme = _SCHEME_PATTERN.match(spelled)
    without_scheme = spelled[scheme.end() :] if scheme else spelled
    return tuple(segment for segment in without_scheme.replace("_", "-").split("/") if segment)
