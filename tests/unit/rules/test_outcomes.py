"""What the rules do about an order by what is known beside it: the clocks, the catalogue's versions, labels, contracts."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from lab_agent.catalogue.model import QuestionType
from lab_agent.catalogue.turnaround import Delayed, Notice, NoticePeriod, Stopped
from lab_agent.fhir.patient_identity import PatientMatch
from lab_agent.rules.catalogue_history import CatalogueHistory, VersionPeriod
from tests.unit.fhir.sample import Change, Wire, answers, patient, pr1, pr2, put, resource, s1, s2, s3
from tests.unit.rules.bad_orders import GOOD
from tests.unit.rules.sample import (
    CATALOGUE,
    FACTS,
    HOUR,
    LAB,
    MINUTE,
    ORDERED,
    SECOND,
    alone,
    both,
    clinic_number,
    coded,
    collected,
    contract,
    contracts,
    follow_up,
    judge,
    order_task,
    outcomes,
    rights,
    same_tube,
    second_label,
    second_subject,
    tube,
    tube_twice,
    whole,
    with_item,
    with_requirement,
    without_item,
)
from tests.unit.rules.test_rule_table import in_use

DAY = 24 * HOUR


def at(moment: dt.datetime) -> Change:
    return put(pr1, "occurrenceDateTime", to=moment.isoformat())


def beside(number: dict[str, str], *, in_one_link: bool = True) -> Change:
    """A number beside the reference to the contract."""
    address = {"reference": "contract/c1"}
    return contracts({**address, "identifier": number}) if in_one_link else contracts(address, {"identifier": number})


def aspirin(wire: Wire) -> None:
    put(answers, "item", 0, "item", 0, "item", 0, "answer", to=[{"valueString": "aspirin"}])(wire)


def asking(**changes: Any) -> Any:
    asked = replace(CATALOGUE.questions["anticoagulant"], **changes)
    return replace(CATALOGUE, questions={**CATALOGUE.questions, "anticoagulant": asked})


def one_type(*, multiple: bool) -> Any:
    """The test needs a type always, and the order brings none of those to choose from."""
    options, required = (CATALOGUE.contract("C-100").items[each].options for each in ("001.001", "004.001"))
    return with_item("004.001", options=options, required=required, multiple_specimen=multiple)


def notice(status: type[Stopped | Delayed], start: int, end: int, *more: Any) -> Any:
    """It holds from so many hours after the order was made."""
    period = NoticePeriod(ORDERED + start * HOUR, ORDERED + end * HOUR)
    return replace(CATALOGUE, notices=(Notice("001.001", status(period, *more)),))


def unreadable(hours: int, *, lifetime: int | None = None, known: Any = None) -> CatalogueHistory:
    """A version that cannot be read ended so many hours before the order."""
    newest = known or without_item("001.001", cache_lifetime_seconds=lifetime)
    return CatalogueHistory((VersionPeriod(newest),), unreadable_until=(ORDERED - hours * HOUR,))


WITHDRAWN = CatalogueHistory((VersionPeriod(without_item("001.001")), VersionPeriod(CATALOGUE, ORDERED - DAY - HOUR / 120)))
NEW = CatalogueHistory((VersionPeriod(CATALOGUE), VersionPeriod(without_item("001.001"), active_until=ORDERED + HOUR)))
NOTHING = replace(CATALOGUE, contracts={"C-100": replace(CATALOGUE.contract("C-100"), items={})})


def ours(*entries: tuple[str, str]) -> Change:
    return lambda wire: order_task(wire).update(meta={"security": rights(*entries)})


def two_old_numbers(wire: Wire) -> None:
    both(alone, follow_up("12345-ABCDE-12345678"))(wire)
    pr1(wire)["basedOn"].insert(0, {"identifier": {"value": "77"}})


def unlabelled(wire: Wire) -> None:
    for each in s1(wire)["container"]:
        each.pop("identifier", None)


def again(*changes: Change) -> Change:
    """The second line is the first test again, from a Specimen of its own."""

    def change(wire: Wire) -> None:
        first = s1(wire)
        parts = {"collection": dict(first["collection"]), "container": [{**tube(wire)}], "extension": [{**first["extension"][0]}]}
        wire["resources"]["Specimen/s3"] = {**first, **parts}
        pr2(wire).update(code=pr1(wire)["code"], specimen=[{"reference": "specimen/s3"}])
        both(*changes)(wire)

    return change


def born(day: str) -> Change:
    return put(patient, "birthDate", to=day)


def site(where: Any, code: str) -> Change:
    """The Specimen names its body site."""
    return lambda wire: where(wire)["collection"].update(bodySite={"coding": [{"code": code}]})


def kind(where: Any, code: str) -> Change:
    return put(where, "container", 0, "type", to=coded("specimen_type", code))


def told_site(where: Any, code: str) -> Change:
    """The supportingInfo of the Specimen names its body site."""
    return put(where, "extension", 0, "valueString", to=f"specimen=11,site={code}")


COOL_BAG = GOOD["a tube in its cool bag"]
WARNED: dict[str, Any] = {"severities": {"order.catalogue": "warn"}}
WITHOUT = [{"catalogue": each, **WARNED} for each in (None, CatalogueHistory(()))]
OTHER = {"labels_in_use": in_use(PatientMatch.DIFFERENT, "1234-5678", "777")}
UNSET = {"systems": replace(FACTS.systems, second_labels_system=None)}
OLD = {"old_order_beside_others": True}

ROWS: list[tuple[str, Change, dict[str, Any]]] = [
    # the clock: the tolerance, to the second, and the service's clock
    ("", at(FACTS.now + 15 * MINUTE), {}),
    ("line.time-future=warn", at(FACTS.now + 15 * MINUTE + SECOND), {}),
    ("specimen.collected-future=refuse", collected(FACTS.now + 2 * DAY), {"service_clock_offset": 0 * HOUR}),
    ("specimen.collected-ahead=hold", collected(FACTS.now + 2 * DAY), {}),
    ("order.clocks-differ=hold", collected(FACTS.now + 2 * DAY), {"service_clock_offset": HOUR}),
    ("order.clocks-differ=hold", collected(FACTS.now + 2 * DAY), {"service_clock_offset": -HOUR}),
    ("order.clocks-differ=hold", collected(FACTS.now + DAY / 10), {"service_clock_offset": DAY}),
    ("specimen.collected-ahead=hold", collected(FACTS.now + DAY / 10), {"service_clock_offset": 0 * HOUR}),
    ("line.time-future=warn specimen.collected-ahead=hold", whole, {"now": FACTS.now - 9 * HOUR}),
    *(("", put(patient, "gender", to=each), {}) for each in ("male", "female", "other", "unknown")),
    # births in 130 years until tomorrow, which may have begun already where the patient is
    ("patient.birth-possible=refuse", born("1895-12-31"), {}),
    ("", born("1896-01-01"), {}),
    ("", born("2026-03-02"), {}),
    ("", born("2026-03-03"), {}),
    ("patient.birth-possible=refuse", born("2026-03-04"), {}),
    ("line.time-future=warn specimen.collected-ahead=hold", born("2026-03-02"), {"now": FACTS.now - 365 * DAY}),
    # the catalogue's versions, that there is none, and tests that one which cannot be read may have offered
    ("line.item=refuse", whole, {"catalogue": WITHDRAWN}),
    ("line.item-withdrawn=warn", whole, {"catalogue": WITHDRAWN, "service_clock_offset": HOUR}),
    ("line.item-withdrawn=warn", whole, {"catalogue": WITHDRAWN, "service_clock_offset": -HOUR}),
    ("line.item=refuse", whole, {"catalogue": WITHDRAWN, "service_clock_offset": MINUTE}),
    ("", whole, {"catalogue": NEW}),
    ("order.catalogue=hold", whole, {"catalogue": None}),
    ("order.catalogue=hold", whole, {"catalogue": CatalogueHistory(())}),
    ("order.catalogue=hold", whole, {"catalogue": NOTHING}),
    ("line.item=refuse order.catalogue=hold", whole, {"catalogue": unreadable(23)}),
    ("line.item=refuse", whole, {"catalogue": unreadable(25)}),
    ("line.item=refuse order.catalogue=hold", whole, {"catalogue": unreadable(25, lifetime=26 * 3600)}),
    ("", whole, {"catalogue": unreadable(23, known=CATALOGUE)}),
    # notices at the time of the order
    ("line.stopped=refuse", whole, {"catalogue": notice(Stopped, -1, 1)}),
    ("line.stopped-since=warn", whole, {"catalogue": notice(Stopped, 1, 9)}),
    ("", whole, {"catalogue": notice(Stopped, -2, -1)}),
    ("", whole, {"catalogue": notice(Stopped, 7, 9)}),
    ("line.delayed=warn", whole, {"catalogue": notice(Delayed, -1, 1, Decimal(48))}),
    # choices: of answers, and of biomaterial
    ("questionnaire.choice=refuse", aspirin, {}),
    ("", aspirin, {"catalogue": asking(options=())}),
    ("", aspirin, {"catalogue": asking(type=QuestionType.STRING)}),
    ("specimen.one-type=refuse", whole, {"catalogue": one_type(multiple=False)}),
    ("specimen.one-type=refuse", whole, {"catalogue": one_type(multiple=True)}),
    # the number of the earlier order
    ("", follow_up(None), {}),
    ("line.old-order=refuse", follow_up(None), OLD),
    ("line.old-order=refuse", both(follow_up(None), alone), {}),
    ("line.old-order=refuse", both(follow_up(None), alone), OLD),
    ("", two_old_numbers, {}),
    # second barcodes, with and without the setting
    ("tube.label-in-use=hold", second_label("042.075", "1234-5678"), OTHER),
    ("", clinic_number("777"), OTHER),
    ("tube.second-label=refuse", second_label("042.036", None), UNSET),
    ("tube.second-label-unset=hold", second_label("042.036", "1234-5678"), UNSET),
    # a number beside a known contract, in one link with it or in another
    ("order.contract-system=warn", beside({"value": "our-7"}), {}),
    ("", beside({"value": "our-7"}, in_one_link=False), {}),
    ("order.contract-system=warn", beside({"system": "http://clinic.example/contract", "value": "our-7"}), {}),
    ("", beside({"system": "http://clinic.example/contract", "value": "our-7"}, in_one_link=False), {}),
    *(("", beside({"system": "urn:clinic", "value": "our-7"}, in_one_link=each), {}) for each in (True, False)),
    *(("", beside({"system": "urn:clinic", "value": "C-200"}, in_one_link=each), {}) for each in (True, False)),
    ("order.contract-known=hold", beside(contract("our-7")), {}),
    ("order.contract-known=hold order.one-contract-link=refuse", beside(contract("our-7"), in_one_link=False), {}),
    ("order.contract-system=warn order.one-contract=refuse", beside({"value": "C-200"}), {}),
    ("order.one-contract=refuse", beside({"value": "C-200"}, in_one_link=False), {}),
    # addresses of the settings, with and without a slash
    ("", whole, {"systems": replace(FACTS.systems, base_url="https://exchange.example/api/", lab_codes_url=LAB)}),
    # tubes: one barcode is of one tube unless something contradicts
    ("tube.label-shared=warn", same_tube, {}),
    ("order.one-patient=refuse tube.label-contradicts=refuse", both(same_tube, second_subject), {}),
    ("tube.label-contradicts=refuse tube.type-fits=refuse", both(same_tube, kind(s2, "EDTA6")), {}),
    ("tube.label-shared=warn tube.type-missing=warn", both(same_tube, put(s2, "container", 0, "type", to={})), {}),
    ("specimen.patient=refuse tube.label-shared=warn", both(same_tube, put(s2, "subject", to=None)), {}),
    (
        "tube.label-shared=warn tube.type-missing=warn",
        lambda wire: s1(wire)["container"].append({**tube(wire), "type": {"text": "tube"}}),
        {},
    ),
    ("order.catalogue=hold tube.label-shared=warn", tube_twice, {"catalogue": None}),
    ("", put(tube, "type", to=None), {"catalogue": with_requirement(container=None)}),
    # without a catalogue a container beside a labelled tube may be what it travels in: it needs no barcode
    *(("order.catalogue=warn", COOL_BAG, each) for each in WITHOUT),
    *(("order.catalogue=warn tube.label=refuse", both(COOL_BAG, unlabelled), each) for each in WITHOUT),
    *(("order.catalogue=warn tube.label=refuse", unlabelled, each) for each in WITHOUT),
    # a test is no repeat from other material: by biomaterial type, body site and containers (table of silences)
    ("line.repeat=refuse tube.label-shared=warn", again(), {}),
    ("tube.label-contradicts=refuse tube.type-fits=refuse", again(kind(s3, "EDTA6")), {}),
    ("tube.label-shared=warn", again(site(s3, "EAR")), {}),
    ("line.repeat=refuse tube.label-shared=warn", again(site(s1, "EAR"), site(s3, "EAR")), {}),
    ("tube.label-contradicts=refuse", again(site(s1, "EAR"), site(s3, "THR")), {}),
    ("line.repeat=refuse specimen.site=warn tube.label-shared=warn", again(site(s1, "EAR"), told_site(s3, "EAR")), {}),
    ("specimen.site=warn tube.label-contradicts=refuse", again(site(s1, "EAR"), told_site(s1, "THR"), told_site(s3, "THR")), {}),
    # rights: ours by name or as owner
    ("", ours(), {}),
    ("", ours(("updatebody", "lab-guid")), {}),
    ("", ours(("owner", "lab-guid")), {}),
    ("rights.update=warn", ours(("read", "lab-guid")), {}),
    ("rights.update=warn", ours(("owner", "other")), {}),
    ("rights.update=warn", ours(("updatebody", "other"), ("read", "lab-guid")), {}),
]
"""What the rules do, and the order and what is known."""


@pytest.mark.parametrize(("expected", "change", "known"), ROWS)
def test_order_is_judged_by_what_is_known(expected: str, change: Change, known: dict[str, Any]) -> None:
    assert outcomes(change, **known) == expected


def test_second_patient_is_judged_where_the_first_has_no_birth_date() -> None:
    old = put(resource("Patient/p2"), "birthDate", to="1890-01-01")
    assert "patient.birth-possible=refuse" in outcomes(second_subject, put(patient, "birthDate", to=None), old)


def test_no_rule_that_reads_the_clock_rejects_while_clocks_differ() -> None:
    change = both(born("1850-01-01"), collected(FACTS.now + 3 * DAY), at(FACTS.now + DAY))
    known = {"severities": {"line.time-future": "refuse"}}
    found = judge(change, service_clock_offset=DAY, **known)
    assert found.rejecting_rules() == frozenset()
    assert {each.rule for each in found.holds} == {"order.clocks-differ"}
    found = judge(change, service_clock_offset=100 * SECOND, **known)
    assert found.rejecting_rules() == {"patient.birth-possible", "line.time-future", "specimen.collected-future"}


def test_hold_of_differing_clocks_reads_the_same_a_second_later() -> None:
    found = [judge(born("1850-01-01"), service_clock_offset=DAY + each * SECOND).holds[0].message for each in (0, 1)]
    assert found[0] == found[1]
