"""What a search asked for, and which rows of its answer fit that. Pure.

A lenient FHIR server ignores the parameters that it does not know and answers with everything that it has. So each row is held
against the search itself: its type, `status`, `code`, `partOf`, `subject`, `identifier` and tag. What does not fit is left aside.
Of copies of one resource the newest counts; where nobody can tell which that is, the resource is read by its id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from lab_agent.exchange.bundle_pages import entry_resource, is_aside
from lab_agent.exchange.fhir_http import body_id, body_version, has_tag, is_resource_type
from lab_agent.exchange.service import Json, SearchKind
from lab_agent.fhir.elements import (
    code_of,
    has_code,
    last_updated,
    number_of,
    objects_of,
    references_of,
    text_of,
    word_of,
)
from lab_agent.fhir.json_reader import parse_date_time
from lab_agent.fhir.received_order import ResourceRef
from lab_agent.fhir.references import resource_at_end
from lab_agent.fhir.task_update import task_status
from lab_agent.shared.code_systems import CodeSystem, SystemMatch
from lab_agent.shared.ids import ResourceId
from lab_agent.shared.values import Identifier


class Fit(Enum):
    """How a row compares with what was asked."""

    FITS = auto()
    OUTDATED = auto()
    """Only its status differs: an index may be a minute behind the resources."""
    FOREIGN = auto()
    OTHER_TYPE = auto()
    """A resource of another type: no parameter that is ignored lets a search of Tasks give anything but Tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchCriteria:
    """One search. What is None was not asked for."""

    kind: SearchKind
    resource_type: str
    status: str | None = None
    code: str | None = None
    part_of: ResourceRef | None = None
    subject: ResourceRef | None = None
    identifier: Identifier | None = None
    tag: Identifier | None = None

    def compare(self, row: Json) -> Fit:
        """Compare one row; references are compared by type and id, codes without their system.

        The system of an identifier is compared as the rules compare it: slashes, case and scheme do not matter.
        """
        if not is_resource_type(row, self.resource_type):
            return Fit.FOREIGN if text_of(row.get("resourceType")) is None else Fit.OTHER_TYPE
        fits = (
            (self.code is None or has_code(row.get("code"), {self.code}))
            and (self.part_of is None or self.part_of in _references(row.get("partOf")))
            and (self.subject is None or self.subject in _references(row.get("subject")))
            and (self.identifier is None or _has_identifier(row, self.identifier))
            and (self.tag is None or has_tag(row, self.tag))
        )
        if not fits:
            return Fit.FOREIGN
        return Fit.FITS if self.status is None or task_status(row) == self.status else Fit.OUTDATED


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The rows that fit, the ids of those that are out of date, and the number of those that were never asked for.

    `other_types` are those of other types, which say nothing about how it filters.
    """

    rows: tuple[Json, ...] = ()
    outdated: frozenset[str] = frozenset()
    foreign: int = 0
    other_types: int = 0
    withholds: bool = False
    """It says itself that there is more than it gives."""


_WITHHOLDING = frozenset({"security", "login", "unknown", "expired", "forbidden", "suppressed"})
"""Types of issues that are about our rights (FHIR STU3, IssueType: security and below)."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A row as it was found; `body` is empty for what was never asked for."""

    fit: Fit
    body: Json
    version: str | None = None
    updated: str | None = None

    def is_older_than(self, other: _Row) -> bool | None:
        """Whether another copy of the resource is newer, by its version or else its time; None where nobody can tell."""
        versions = [number_of(each.version) for each in (self, other)]
        if versions[0] is not None and versions[1] is not None and versions[0] != versions[1]:
            return versions[0] < versions[1]
        times = [parse_date_time(each.updated) if each.updated else None for each in (self, other)]
        return times[0] < times[1] if times[0] and times[1] and times[0] != times[1] else None


@dataclass(slots=True)
class RowSelection:
    """Holds the rows of a search against it, page by page; what was never asked for is counted and not kept."""

    criteria: SearchCriteria
    contested: dict[ResourceId, tuple[str, str]] = field(default_factory=dict)
    """Resources of which several copies came, and nobody can tell which is the newest: to be read, and given to `settle`."""
    _rows: dict[tuple[str, str], _Row] = field(default_factory=dict)
    _total: int = 0
    _withholds: bool = False

    def __len__(self) -> int:
        """How many rows were held against it."""
        return len(self._rows)

    def add(self, bundle: Json) -> None:
        """Add the rows of a page. Pages shift while they are read: one resource may come several times."""
        total = bundle.get("total")
        self._total = max(self._total, number_of(total) or 0)
        self._withholds |= any(map(_is_withheld, objects_of(bundle.get("entry")))) or (
            total is not None and number_of(total) is None
        )
        for body in found_rows(bundle):
            self._add(self._read(body), body_id(body), code_of(body.get("resourceType")) or "")

    def settle(self, resource: ResourceId, body: Json | None) -> None:
        """Take a contested resource as it was read; None if it is not there any more."""
        key = self.contested.pop(resource)
        if body is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = self._read(body)

    def _read(self, body: Json) -> _Row:
        fit = self.criteria.compare(body)
        keeps_all = self.criteria.resource_type == "Contract"  # see `_is_sole_unidentified_contract`; there are few
        is_kept = keeps_all or fit in {Fit.FITS, Fit.OUTDATED}
        return _Row(fit, body if is_kept else {}, body_version(body), last_updated(body))

    def _add(self, row: _Row, resource: ResourceId | None, resource_type: str) -> None:
        key = (resource_type, resource or f" {len(self._rows)}")
        before = self._rows.get(key)
        is_newer = True if before is None or resource is None else before.is_older_than(row)
        if is_newer is None and before is not None and before != row and (before.body or row.body):
            self.contested[ResourceId(key[1])] = key
        if is_newer is not False:
            self._rows[key] = row

    def answer(self) -> SearchAnswer:
        """What was asked for, and what else there was."""
        others = sum(row.fit is Fit.OTHER_TYPE for row in self._rows.values())
        rows = [row for row in self._rows.values() if row.fit is not Fit.OTHER_TYPE]
        if _is_sole_unidentified_contract(self.criteria, [row.body for row in rows]):
            return SearchAnswer(tuple(row.body for row in rows), other_types=others)
        return SearchAnswer(
            rows=tuple(row.body for row in rows if row.fit is Fit.FITS),
            outdated=frozenset(str(row.body.get("id")) for row in rows if row.fit is Fit.OUTDATED),
            foreign=sum(row.fit is Fit.FOREIGN for row in rows),
            other_types=others,
            withholds=self._withholds or self._total > len(self._rows),
        )


def found_rows(bundle: Json) -> list[Json]:
    """The resources that a page gives as matches; an OperationOutcome and what is only included are none."""
    found = map(entry_resource, objects_of(bundle.get("entry")))
    return [row for row in found if row is not None and not is_resource_type(row, "OperationOutcome")]


def _is_sole_unidentified_contract(criteria: SearchCriteria, rows: list[Json]) -> bool:
    """Whether the answer is one Contract that shows no identifier: the interface does not show the fields of a Contract."""
    return (
        criteria.resource_type == "Contract"
        and len(rows) == 1
        and is_resource_type(rows[0], "Contract")
        and "identifier" not in rows[0]
    )


def _is_withheld(entry: Json) -> bool:
    """Whether an entry stands for a resource that is not shown: it has none, or an OperationOutcome that says so."""
    resource = entry.get("resource")
    if not isinstance(resource, Mapping):
        return not is_aside(entry)
    issues = objects_of(resource.get("issue")) if is_resource_type(resource, "OperationOutcome") else []
    return any(code_of(issue.get("code")) in _WITHHOLDING for issue in issues)


def _references(value: Any) -> frozenset[ResourceRef]:
    """Type and id of each reference, in whatever form: whose address stands before them does not matter here."""
    return frozenset(ref for each in references_of(value) for ref in resource_at_end(text_of(each.get("reference"))))


def _has_identifier(row: Json, asked: Identifier) -> bool:
    found = _identifiers(row.get("identifier"))
    return any(each.value == asked.value and _is_same_system(each.system, asked.system) for each in found)


def _is_same_system(found: str | None, asked: str | None) -> bool:
    if asked is None or found is None:
        return found == asked
    return CodeSystem(asked, "").match(found) in {SystemMatch.EXACT, SystemMatch.SPELLED_DIFFERENTLY}


def _identifiers(value: Any) -> Iterator[Identifier]:
    for each in objects_of(value):
        if (text := word_of(each.get("value"))) is not None:
            yield Identifier(system=text_of(each.get("system")), value=text)
