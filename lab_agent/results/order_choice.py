"""Which of the orders that a message may mean, by a number that is not ours, it can mean. Pure.

Accession numbers and barcodes name more than one order: a tube serves two of them, a label is used again years later, a counter
starts over. The newest is no better than the others, so what the message says decides, and where it does not, a person.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from lab_agent.lis.lab_messages import LabReport
from lab_agent.lis.lab_order import OrderPatient
from lab_agent.results.patient_comparison import may_be_one_person
from lab_agent.results.report_coverage import Coverage
from lab_agent.shared.ids import LineKey, OrderKey
from lab_agent.shared.state_machines import LineState
from lab_agent.shared.values import latest_moment

_COLLECTION_TOLERANCE = timedelta(hours=24)
"""More than any time zone that was mistaken for another."""


class Misfit(StrEnum):
    """Why an order cannot be meant, or is less likely meant than another one; in the words in which people read it."""

    ANOTHER_PATIENT = "another patient"
    ANOTHER_TEST = "another test"
    COLLECTED_LATER = "collected after this result"
    WITHDRAWN = "withdrawn"
    HAS_RESULTS = "has its results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An order that a message may mean, at the laboratory system that sent it.

    `coverage` is what the message would be about there, `states` those of the order's lines. `tests` are the exchange's codes
    under which results of a line are known to come; empty where that is not known. `collected_at` is when the first specimen was
    taken. `patient` is the order's, as far as it is kept. `has_report`: it has a version of the report.
    """

    order: OrderKey
    coverage: Coverage
    states: Mapping[LineKey, LineState]
    tests: Mapping[LineKey, frozenset[str]]
    collected_at: datetime | None
    patient: OrderPatient | None
    is_another_patient: bool
    has_report: bool

    @property
    def waits(self) -> bool:
        """Whether a line that the message is about waits for a result."""
        return any(self.states[key] is LineState.ACCEPTED for key in self.coverage.lines)


@dataclass(frozen=True, slots=True)
class Choice:
    """The one order that is meant, or None; and why each of the others is not."""

    order: OrderKey | None
    misfits: Mapping[OrderKey, Misfit]


def choose_order(candidates: Sequence[Candidate], report: LabReport | None, codes: Collection[str]) -> Choice:
    """Choose the one order that a message can mean. `codes` are the exchange's codes of the report's values.

    First falls out what is contradicted: another patient, another test, a specimen that was taken later. Of several that are
    left, those at the laboratory come before withdrawn ones of the same person, then those that wait for a result, or have a
    version of the report. (On a withdrawn line the laboratory may have worked, and its tube may be another person's by now.) An
    order whose test is named is not replaced by one that is only left over. The patient of a single candidate and the names of
    its tests are compared later, where the difference can be told in full.
    """
    several = len(candidates) > 1
    misfits = {each.order: misfit for each in candidates if (misfit := _find_misfit(each, report, codes, several=several))}
    left = [each for each in candidates if each.order not in misfits]
    if any(_names_test(each, codes) for each in candidates):
        left = _prefer(left, [each for each in left if _names_test(each, codes)], Misfit.ANOTHER_TEST, misfits, strict=True)
    present = [each for each in left if not _is_withdrawn(each)]
    left = _prefer(
        left, [each for each in left if each in present or not _is_same_person(each, present)], Misfit.WITHDRAWN, misfits
    )
    open_ones = [each for each in left if each.waits or each.has_report or _is_withdrawn(each)]
    left = _prefer(left, open_ones, Misfit.HAS_RESULTS, misfits)
    return Choice(left[0].order if len(left) == 1 else None, misfits)


def _prefer(
    left: list[Candidate], better: list[Candidate], reason: Misfit, misfits: dict[OrderKey, Misfit], *, strict: bool = False
) -> list[Candidate]:
    """Keep the better ones, if there are any (or `strict`), and note why the others fell out."""
    if not better and not strict:
        return left
    misfits.update({each.order: reason for each in left if each not in better})
    return better


def _find_misfit(candidate: Candidate, report: LabReport | None, codes: Collection[str], *, several: bool) -> Misfit | None:
    if several and candidate.is_another_patient:
        return Misfit.ANOTHER_PATIENT
    if (several and candidate.coverage.problem) or _is_other_test(candidate, codes):
        return Misfit.ANOTHER_TEST
    taken = candidate.collected_at
    if report is not None and taken is not None and taken - latest_moment(report.effective) > _COLLECTION_TOLERANCE:
        return Misfit.COLLECTED_LATER
    return None


def _tests(candidate: Candidate) -> Iterable[frozenset[str]]:
    return (candidate.tests.get(key, frozenset()) for key in candidate.coverage.lines)


def _names_test(candidate: Candidate, codes: Collection[str]) -> bool:
    return any(not tests.isdisjoint(codes) for tests in _tests(candidate))


def _is_other_test(candidate: Candidate, codes: Collection[str]) -> bool:
    """Whether the results of all lines that are meant come under codes that are known, and the report has none of them."""
    return bool(codes) and all(_tests(candidate)) and not _names_test(candidate, codes)


def _is_same_person(candidate: Candidate, others: Sequence[Candidate]) -> bool:
    """Whether its patient may be that of all the others."""
    return all(may_be_one_person(candidate.patient, each.patient) for each in others)


def _is_withdrawn(candidate: Candidate) -> bool:
    return all(candidate.states[key] is LineState.WITHDRAWN for key in candidate.coverage.lines)
