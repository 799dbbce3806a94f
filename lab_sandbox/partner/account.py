"""The partner's registration with the service, and the code systems of its resources."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from lab_sandbox.partner.errors import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class PartnerAccount:
    """A partner's registration (interface: What the service does, point 2; Authentication, points 1 to 3).

    `base_url` ends in a slash, `auth_url` and `lab_codes_url` do not. `guid` is the partner's own counterparty guid,
    `laboratory` that of the laboratory, `contract` the code of the contract between them.
    """

    base_url: str
    auth_url: str
    login: str
    password: str = field(repr=False)
    client_id: str
    client_secret: str = field(repr=False)
    redirect_uri: str
    guid: str
    laboratory: str
    contract: str
    lab_codes_url: str
    second_labels_system: str
    own_systems: str = "http://clinic.example"
    spelling: Literal["lower", "fhir"] = "lower"
    """How types are written in paths and references: `task/<id>` as in the interface document, or `Task/<id>` as in FHIR."""

    def type_name(self, kind: str) -> str:
        """A resource type as it is written in paths and references."""
        return kind.lower() if self.spelling == "lower" else kind

    @property
    def resource_base(self) -> str:
        """What an absolute reference begins with: in FHIR the address of the FHIR server itself."""
        return self.base_url if self.spelling == "lower" else f"{self.base_url}fhir/"

    def reference(self, kind: str, id_: str) -> str:
        """A relative reference."""
        return f"{self.type_name(kind)}/{id_}"

    def service_system(self, name: str) -> str:
        """A code system of the service: `{base_url}terminology/<name>`."""
        return f"{self.base_url}terminology/{name}"

    def lab_system(self, name: str) -> str:
        """A laboratory-side code system: `{lab_codes_url}/<name>`."""
        return f"{self.lab_codes_url}/{name}"

    def own_system(self, name: str) -> str:
        """A system of the partner's own identifiers (requisitions, lines)."""
        return f"{self.own_systems}/{name}"

    def security_meta(self, *laboratory_rights: str) -> Json:
        """`meta` that grants the laboratory these rights, and the partner read (interface: Authentication, point 8)."""
        return {
            "security": [
                *_security_labels(laboratory_rights, self.laboratory),
                *_security_labels(("read", "readhistory"), self.guid),
            ]
        }


def _security_labels(rights: Iterable[str], guid: str) -> list[Json]:
    return [{"system": right, "code": guid} for right in rights]
