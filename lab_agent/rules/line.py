"""Rules about one order line: its status, its test, its time, its turnaround, the studies with rules of their own."""

from __future__ import annotations

from collections.abc import Iterator

from lab_agent.catalogue.items import Item
from lab_agent.catalogue.turnaround import Delayed, Status, Stopped
from lab_agent.domain.received import ReceivedLine, ReceivedRequest, subject_key
from lab_agent.domain.systems import SystemMatch
from lab_agent.rules import special
from lab_agent.rules.case import Case
from lab_agent.rules.material import taken
from lab_agent.rules.rule import Problem, Rule, Severity


def _status(case: Case) -> Iterator[Problem]:
    for line, request in case.lines():
        if request.status != "active":
            yield Problem(f"{request.where}.status", (line.id,), {"status": request.status or "missing"})


def _subject(case: Case) -> Iterator[Problem]:
    for line, request in case.lines():
        if subject_key(request.subject) is None and not (request.subject and request.subject.text):
            yield Problem(f"{request.where}.subject", (line.id,))


def _code(case: Case) -> Iterator[Problem]:
    for line, request in case.lines():
        if case.item_coding(request) is None:
            yield Problem(f"{request.where}.code", (line.id,))


def _code_system(case: Case, *wanted: SystemMatch) -> Iterator[Problem]:
    system = case.facts.systems.nomenclature
    for line, request in case.lines():
        coding = case.item_coding(request)
        if coding and system.match(coding.system) in wanted:
            yield Problem(f"{request.where}.code.coding", (line.id,), {"system": system.address})


def _code_system_foreign(case: Case) -> Iterator[Problem]:
    yield from _code_system(case, SystemMatch.FOREIGN)


def _code_system_spelling(case: Case) -> Iterator[Problem]:
    yield from _code_system(case, SystemMatch.SPELLED, SystemMatch.MISSING)


def _item(case: Case) -> Iterator[Problem]:
    contract = case.contract()
    if case.catalogue is None or contract is None or not case.catalogue.offers(contract):
        return
    for line, request in case.lines():
        coding = case.item_coding(request)
        foreign = coding and case.facts.systems.nomenclature.match(coding.system) is SystemMatch.FOREIGN
        if coding and not foreign and not case.items(request):
            yield Problem(f"{request.where}.code", (line.id,), {"code": coding.code, "contract": contract})


def _item_current(case: Case) -> Iterator[Problem]:
    contract = case.contract()
    for line, request, items in case.known_lines():
        if case.catalogue and contract and case.catalogue.current(contract, items[0].id) is None:
            yield Problem(f"{request.where}.code", (line.id,), {"code": items[0].id})


def _statuses(case: Case) -> Iterator[tuple[ReceivedLine, ReceivedRequest, Item, Status, Status]]:
    """The turnaround of each test when it was ordered, and now."""
    contract = case.contract()
    for line, request, items in case.known_lines():
        if case.catalogue and contract:
            then = case.catalogue.status(contract, items[0], case.ordered_at(request))
            yield line, request, items[0], then, case.catalogue.status(contract, items[0], case.facts.now)


def _stopped(case: Case) -> Iterator[Problem]:
    for line, request, item, then, _ in _statuses(case):
        if isinstance(then, Stopped):
            until = then.period.end.isoformat()
            yield Problem(f"{request.where}.code", (line.id,), {"code": item.id, "until": until})


def _stopped_since(case: Case) -> Iterator[Problem]:
    for line, request, item, then, now in _statuses(case):
        if isinstance(now, Stopped) and not isinstance(then, Stopped):
            yield Problem(f"{request.where}.code", (line.id,), {"code": item.id, "until": now.period.end.isoformat()})


def _delayed(case: Case) -> Iterator[Problem]:
    for line, request, item, then, _ in _statuses(case):
        if isinstance(then, Delayed):
            yield Problem(f"{request.where}.code", (line.id,), {"code": item.id, "hours": format(then.hours, "f")})


def _repeat(case: Case) -> Iterator[Problem]:
    seen: set[object] = set()
    requests = {request.ref: (line, request, items) for line, request, items in reversed(list(case.known_lines()))}
    for line, request, items in reversed(requests.values()):
        specimens = case.order.specimens_of(request)
        key = (items[0].id, frozenset(taken(case, specimen) for specimen in specimens))
        if key in seen and not any(item.allow_multiple_items for item in items):
            yield Problem(f"{request.where}.code", (line.id,), {"code": items[0].id})
        seen.add(key)


def _time(case: Case) -> Iterator[Problem]:
    for line, request in case.lines():
        if request.occurrence is None or request.occurrence.at is None:
            text = request.occurrence.text if request.occurrence else "missing"
            yield Problem(f"{request.where}.occurrenceDateTime", (line.id,), {"text": text})


def _time_future(case: Case) -> Iterator[Problem]:
    for line, request in case.lines():
        at = request.occurrence.at if request.occurrence else None
        if at and at > case.facts.now + case.facts.future_tolerance:
            yield Problem(f"{request.where}.occurrenceDateTime", (line.id,), {"text": at.isoformat()})


_CODE = "ProcedureRequest: code"
_ETA = "Turnaround item: rules"
RULES = (
    Rule(
        id="line.status",
        severity=Severity.REFUSE,
        section="ProcedureRequest: status",
        check=_status,
        message="{where}: is {status}, and must be active. Send active tests only.",
    ),
    Rule(
        id="line.subject",
        severity=Severity.REFUSE,
        section="ProcedureRequest: subject",
        check=_subject,
        message="{where}: names no patient. Send the reference of the order's Patient.",
    ),
    Rule(
        id="line.code",
        severity=Severity.REFUSE,
        section=_CODE,
        check=_code,
        message="{where}: names no test. Send the item code of the nomenclature.",
    ),
    Rule(
        id="line.code-system",
        severity=Severity.REFUSE,
        section=_CODE,
        check=_code_system_foreign,
        message="{where}: the code is not from the nomenclature. Send a code of the system {system}.",
    ),
    Rule(
        id="line.code-system-spelling",
        severity=Severity.WARN,
        section=_CODE,
        check=_code_system_spelling,
        message="{where}: the system is not written as the interface writes it. Send {system}.",
    ),
    Rule(
        id="line.item",
        severity=Severity.REFUSE,
        section=_CODE,
        check=_item,
        message="{where}: test {code} is not in the nomenclature of contract {contract}. Fetch the nomenclature again and choose "
        "a test from it.",
    ),
    Rule(
        id="line.item-withdrawn",
        severity=Severity.WARN,
        section="Limits: the nomenclature may be cached for one day",
        check=_item_current,
        message="{where}: test {code} has been withdrawn from the nomenclature since. Fetch the nomenclature again.",
    ),
    Rule(
        id="line.stopped",
        severity=Severity.REFUSE,
        section=_ETA,
        check=_stopped,
        message="{where}: test {code} is not performed until {until}. Order it again then, or choose another test.",
    ),
    Rule(
        id="line.stopped-since",
        severity=Severity.WARN,
        section=_ETA,
        check=_stopped_since,
        message="{where}: test {code} was stopped after it was ordered, until {until}. The laboratory will be in touch.",
    ),
    Rule(
        id="line.delayed",
        severity=Severity.WARN,
        section=_ETA,
        check=_delayed,
        message="{where}: test {code} takes {hours} hours longer at present. Nothing needs to be done.",
    ),
    Rule(
        id="line.repeat",
        severity=Severity.REFUSE,
        section="Nomenclature item: allow_multiple_items",
        check=_repeat,
        message="{where}: test {code} is in this order already, with the same biomaterial. Order it once.",
    ),
    Rule(
        id="line.time",
        severity=Severity.WARN,
        section="ProcedureRequest: occurrenceDateTime",
        check=_time,
        message="{where}: {text} is not a date and time with offset. Send the time at which the order was made, with its offset.",
    ),
    Rule(
        id="line.time-future",
        severity=Severity.WARN,
        section="ProcedureRequest: occurrenceDateTime",
        check=_time_future,
        message="{where}: {text} is in the future. Check the clock of the ordering system.",
    ),
    *special.RULES,
)
