"""The addresses of code systems, in one place, written as the interface writes them and read with tolerance.

The interface writes `{base_url}terminology/…` without and `{lab_codes_url}/…` with a slash between, and spells the specimen type
in two ways. What we write follows it to the letter. What we read is compared with the slashes, the case, the scheme and
`-`/`_` left aside, so that a slip of spelling is a warning and only a foreign system is a fault.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class SystemMatch(StrEnum):
    """How a code system as received compares with the one that the interface names."""

    EXACT = "exact"
    SPELLED = "spelled"
    MISSING = "missing"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class CodeSystem:
    """One code system: the `address` that the interface names, and its `tail` behind the installation's own address."""

    address: str
    tail: str

    def match(self, seen: str | None) -> SystemMatch:
        """Compare with a system as received; one with the same tail behind another base address counts as spelled differently."""
        if seen is None or not seen.strip():
            return SystemMatch.MISSING
        if seen == self.address:
            return SystemMatch.EXACT
        tail = _segments(self.tail)
        same_tail = bool(tail) and _segments(seen)[-len(tail) :] == tail
        return SystemMatch.SPELLED if same_tail or _bare(seen) == _bare(self.address) else SystemMatch.FOREIGN


@dataclass(frozen=True, slots=True, kw_only=True)
class Systems:
    """The installation's addresses from which every code system is made (interface: preamble)."""

    base_url: str
    lab_codes_url: str
    second_labels_system: str | None = None

    def _service(self, tail: str) -> CodeSystem:
        return CodeSystem(f"{self.base_url.rstrip('/')}/{tail}", tail)

    def _laboratory(self, tail: str) -> CodeSystem:
        return CodeSystem(f"{self.lab_codes_url.rstrip('/')}/{tail}", tail)

    @property
    def nomenclature(self) -> CodeSystem:
        """Codes of the tests."""
        return self._service("terminology/nomenclature")

    @property
    def task_type(self) -> CodeSystem:
        """Codes of the order-level Task."""
        return self._service("terminology/task_type")

    @property
    def specimen_type(self) -> CodeSystem:
        """Codes of biomaterial (Specimen.type)."""
        return self._service("terminology/specimen-type")

    @property
    def container_type(self) -> CodeSystem:
        """Codes of containers (Specimen.container.type), spelled with an underscore in the interface."""
        return self._service("terminology/specimen_type")

    @property
    def method(self) -> CodeSystem:
        """Collection methods (Specimen.collection.method)."""
        return self._service("terminology/treatment_protocol")

    @property
    def supporting_info(self) -> CodeSystem:
        """The url of the Specimen's extension."""
        return self._service("extra/supportingInfo")

    @property
    def contract(self) -> CodeSystem:
        """Contract codes."""
        return self._laboratory("contract")

    @property
    def labels(self) -> CodeSystem:
        """Barcodes of containers."""
        return self._laboratory("labels")

    @property
    def second_labels(self) -> CodeSystem | None:
        """Second barcodes of the two-barcode studies; None where the installation has set none."""
        return CodeSystem(self.second_labels_system, "") if self.second_labels_system else None

    @property
    def notification(self) -> CodeSystem:
        """Notification options (Task.input)."""
        return self._laboratory("notification")

    @property
    def old_orders(self) -> CodeSystem:
        """Old order numbers of the follow-up study (ProcedureRequest.basedOn)."""
        return self._laboratory("mis")


def _segments(address: str) -> list[str]:
    without_scheme = re.sub(r"^[a-z][a-z0-9+.-]*:/+", "", address.strip().casefold())
    return [segment for segment in without_scheme.replace("_", "-").split("/") if segment]


def _bare(address: str) -> str:
    return "".join(_segments(address))
