"""What a search asked for, and which rows of its answer fit that. Pure.

A lenient FHIR server ignores the parameters that it does not know and answers with everything that it has. So each row is held
against the search itself: its type, `status`, `code`, `partOf`, `subject`, `identifier` and tag. What does not fit is left aside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from lab_agent.domain.code_systems import CodeSystem, SystemMatch
from lab_agent.domain.received_order import ResourceRef
from lab_agent.domain.values import Identifier
from lab_agent.exchange.fhir_http import body_id, has_tag, is_resource_type
from lab_agent.fhir.references import resource_at_end
from lab_agent.ports.exchange import Json, SearchKind


class Fit(Enum):
    """How a row compares with what was asked."""

    FITS = auto()
    OUTDATED = auto()
    """Only its status differs: an index may be a minute behind the resources."""
    FOREIGN = auto()


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
        fits = (
            is_resource_type(row, self.resource_type)
            and (self.code is None or self.code in _codes(row.get("code")))
            and (self.part_of is None or self.part_of in _references(row.get("partOf")))
            and (self.subject is None or self.subject in _references(row.get("subject")))
            and (self.identifier is None or _has_identifier(row, self.identifier))
            and (self.tag is None or has_tag(row, self.tag))
        )
        if not fits:
            return Fit.FOREIGN
        return Fit.FITS if self.status is None or row.get("status") == self.status else Fit.OUTDATED


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The rows that fit, the ids of those that are out of date, and the number of those that were never asked for."""

    rows: tuple[Json, ...] = ()
    outdated: frozenset[str] = frozenset()
    foreign: int = 0
    withholds: bool = False
    """It says itself that there is more than it gives."""


_WITHHOLDING = frozenset({"security", "login", "unknown", "expired", "forbidden", "suppressed"})
"""Types of issues that are about our rights (FHIR STU3, IssueType: security and below)."""


class RowSelection:
    """Holds the rows of a search against it, page by page; what was never asked for is counted and not kept."""

    def __init__(self, criteria: SearchCriteria) -> None:
        self.criteria = criteria
        self._rows: dict[object, tuple[Fit, Json]] = {}
        self._total = 0
        self._withholds = False

    def __len__(self) -> int:
        """How many rows were held against it."""
        return len(self._rows)

    def add(self, bundle: Json) -> None:
        """Add the rows of a page; the last copy of a resource counts, since pages shift while they are read."""
        self._total = max(self._total, total) if isinstance(total := bundle.get("total"), int) else self._total
        self._withholds |= any(map(_is_withheld, _objects(bundle.get("entry"))))
        rows = found_rows(bundle)
        keeps_all = self.criteria.resource_type == "Contract"  # see `_is_sole_unidentified_contract`; there are few
        for row in rows:
            fit = self.criteria.compare(row)
            self._rows[body_id(row) or len(self._rows)] = (fit, row if keeps_all or fit is not Fit.FOREIGN else {})

    def answer(self) -> SearchAnswer:
        """What was asked for, and what else there was."""
        compared = self._rows.values()
        if _is_sole_unidentified_contract(self.criteria, [row for _, row in compared]):
            return SearchAnswer(tuple(row for _, row in compared))
        return SearchAnswer(
            tuple(row for fit, row in compared if fit is Fit.FITS),
            frozenset(str(row.get("id")) for fit, row in compared if fit is Fit.OUTDATED),
            sum(fit is Fit.FOREIGN for fit, _ in compared),
            self._withholds or self._total > len(self._rows),
        )


def found_rows(bundle: Json) -> list[Json]:
    """The resources that a page gives as matches; an OperationOutcome and what is only included are none."""
    entries = (each for each in _objects(bundle.get("entry")) if not _is_included(each))
    return [
        row
        for each in entries
        if isinstance(row := each.get("resource"), Mapping) and not is_resource_type(row, "OperationOutcome")
    ]


def _is_sole_unidentified_contract(criteria: SearchCriteria, rows: list[Json]) -> bool:
    """Whether the answer is one Contract that shows no identifier: the interface does not show the fields of a Contract."""
    return (
        criteria.resource_type == "Contract"
        and len(rows) == 1
        and is_resource_type(rows[0], "Contract")
        and "identifier" not in rows[0]
    )


def _is_included(entry: Json) -> bool:
    search = entry.get("search")
    return isinstance(search, Mapping) and search.get("mode") in {"include", "outcome"}


def _is_withheld(entry: Json) -> bool:
    """Whether an entry stands for a resource that is not shown: it has none, or an OperationOutcome that says so."""
    resource = entry.get("resource")
    if not isinstance(resource, Mapping):
        return not _is_included(entry)
    issues = _objects(resource.get("issue")) if is_resource_type(resource, "OperationOutcome") else []
    return any(issue.get("code") in _WITHHOLDING for issue in issues)


def _codes(concept: Any) -> frozenset[str]:
    codings = concept.get("coding") if isinstance(concept, Mapping) else None
    return frozenset(str(each["code"]) for each in _objects(codings) if "code" in each)


def _references(value: Any) -> frozenset[ResourceRef | None]:
    """Type and id of each reference, in whatever form: whose address stands before them does not matter here."""
    return frozenset(resource_at_end(each.get("reference")) for each in _objects(value))


def _has_identifier(row: Json, asked: Identifier) -> bool:
    found = _identifiers(row.get("identifier"))
    return any(each.value == asked.value and _is_same_system(each.system, asked.system) for each in found)


def _is_same_system(found: str | None, asked: str | None) -> bool:
    if asked is None or found is None:
        return found == asked
    return CodeSystem(asked, "").match(found) in {SystemMatch.EXACT, SystemMatch.SPELLED_DIFFERENTLY}


def _identifiers(value: Any) -> Iterator[Identifier]:
    for each in _objects(value):
        system, text = each.get("system"), each.get("value")
        if isinstance(text, str):
            yield Identifier(system=system if isinstance(system, str) else None, value=text)


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in (value if isinstance(value, list | tuple) else [value]) if isinstance(each, Mapping)]
