"""The URLs of code systems, written exactly as the interface writes them and compared with tolerance.

The interface writes `{base_url}terminology/…` without and `{lab_codes_url}/…` with a slash between, and spells the specimen type
in two ways. Slashes, case, scheme and `-`/`_` are ignored when a received system is compared, so that a spelling mistake is a
warning and only a foreign system is an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class SystemMatch(StrEnum):
    """How a code system as received compares with the one that the interface names."""

    EXACT = "exact"
    SPELLED_DIFFERENTLY = "spelled_differently"
    MISSING = "missing"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
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
        suffix = _segments(self.suffix)
        same_suffix = bool(suffix) and _segments(received)[-len(suffix) :] == suffix
        return (
            SystemMatch.SPELLED_DIFFERENTLY
            if same_suffix or _normalize(received) == _normalize(self.url)
            else SystemMatch.FOREIGN
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSystems:
    """The installation's addresses, from which every code system is derived (interface: preamble)."""

    base_url: str
    lab_codes_url: str
    second_labels_system: str | None = None

    def _service_system(self, suffix: str) -> CodeSystem:
        return CodeSystem(f"{self.base_url.rstrip('/')}/{suffix}", suffix)

    def _laboratory_system(self, suffix: str) -> CodeSystem:
        return CodeSystem(f"{self.lab_codes_url.rstrip('/')}/{suffix}", suffix)

    @property
    def nomenclature(self) -> CodeSystem:
        """Codes of the tests."""
        return self._service_system("terminology/nomenclature")

    @property
    def task_type(self) -> CodeSystem:
        """Codes of the order-level Task."""
        return self._service_system("terminology/task_type")

    @property
    def specimen_type(self) -> CodeSystem:
        """Codes of biomaterials (Specimen.type)."""
        return self._service_system("terminology/specimen-type")

    @property
    def container_type(self) -> CodeSystem:
        """Codes of containers (Specimen.container.type), spelled with an underscore in the interface."""
        return self._service_system("terminology/specimen_type")

    @property
    def method(self) -> CodeSystem:
        """Collection methods (Specimen.collection.method)."""
        return self._service_system("terminology/treatment_protocol")

    @property
    def supporting_info(self) -> CodeSystem:
        """The URL of the Specimen's extension."""
        return self._service_system("extra/supportingInfo")

    @property
    def contract(self) -> CodeSystem:
        """Contract codes."""
        return self._laboratory_system("contract")

    @property
    def labels(self) -> CodeSystem:
        """Barcodes of containers."""
        return self._laboratory_system("labels")

    @property
    def second_labels(self) -> CodeSystem | None:
        """Second barcodes of the two-barcode studies; None if the installation has set no system for them."""
        return CodeSystem(self.second_labels_system, "") if self.second_labels_system else None

    @property
    def patients(self) -> str:
        """The system of the Patients' ids on the service, as an assigning authority for the laboratory's own software."""
        return self._service_system("fhir/Patient").url

    @property
    def notification(self) -> CodeSystem:
        """Notification options (Task.input)."""
        return self._laboratory_system("notification")

    @property
    def old_orders(self) -> CodeSystem:
        """Old order numbers of the follow-up study (ProcedureRequest.basedOn)."""
        return self._laboratory_system("mis")


def _segments(address: str) -> list[str]:
    without_scheme = re.sub(r"^[a-z][a-z0-9+.-]*:/+", "", address.strip().casefold())
    return [segment for segment in without_scheme.replace("_", "-").split("/") if segment]


def _normalize(address: str) -> str:
    return "".join(_segments(address))
