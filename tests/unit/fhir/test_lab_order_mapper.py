from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from lab_agent.fhir.lab_order_mapper import make_lab_order
from lab_agent.lis.lab_order import LabOrder, NotificationOption, OrderPatient, PatientName, format_answer_path
from lab_agent.shared.errors import DataInvalidError
from lab_agent.shared.ids import LineKey, OrderKey
from lab_agent.shared.values import Coding, Identifier
from tests.unit.fhir.sample import SYSTEMS, Change, Wire, answers, parsed, patient, pr1, pr2, put, s1, s2

SEEN = datetime(2026, 3, 2, 12, tzinfo=UTC)
LABELS, SECOND, MIS = (f"https://lab.example/{each}" for each in ("codes/labels", "second-labels", "codes/mis"))


class FakeCatalogue:
    def lab_code(self, contract: str, item_id: str) -> str | None:
        return {("C-100", "001.001"): "CBC5"}.get((contract, item_id))

    def is_second_label(self, contract: str, item_ids: Collection[str], value: str) -> bool:
        return "001.001" in item_ids and value.count("-") == 1

    def body_site(self, supporting_info: str) -> str | None:
        return supporting_info.partition("site=")[2] or None


def mapped(*changes: Change, accepted: tuple[str, ...] = ("t1", "t2"), systems: Any = SYSTEMS) -> LabOrder:
    return make_lab_order(
        parsed(*changes),
        accepted,
        order_key=OrderKey("RKEY"),
        line_keys={"t1": LineKey("L1"), "t2": LineKey("L2")},
        contract="C-100",
        catalogue=FakeCatalogue(),
        systems=systems,
        first_seen_at=SEEN,
    )


def test_order_mapped_to_laboratory_terms() -> None:
    order = mapped()
    first, second = order.lines
    assert (order.key, order.requisition.value, order.contract) == ("RKEY", "4711", "C-100")
    assert (first.key, first.item, first.lab_code, first.text) == ("L1", "001.001", "CBC5", "Complete blood count")
    assert (first.notes, first.specimens, first.identifiers[0].value) == (("fasting",), ("s1",), "4711-1")
    assert (second.item, second.lab_code) == ("004.001", None)
    assert order.ordered_at == second.ordered_at
    assert (order.patient.family, order.patient.given, order.patient.anonymous) == ("Lovelace", ("Ada", "King"), False)
    assert [telecom.value for telecom in order.patient.telecom] == ["+700", "ada@example.org"]
    tube = order.specimens[0].containers[0]
    assert (tube.barcode, tube.second_barcode, tube.type, tube.quantity) == ("10000001", None, "EDTA3", Decimal("0.80"))
    assert (order.specimens[0].type, order.specimens[0].method) == ("11", "Venepuncture")
    assert order.specimens[0].supporting_info == "specimen=11"
    assert {answer.link_id: answer.values for answer in order.answers} == {
        "anticoagulant": (Coding(system="https://lab.example/codes/anticoagulant", code="none"),),
        "cycle-day": (0,),
    }
    assert order.notifications == (
        NotificationOption(channel="sms", wanted=False),
        NotificationOption(channel="email", wanted=True),
    )


def test_only_accepted_lines_and_their_specimens_included() -> None:
    order = mapped(accepted=("t2",))
    assert ([line.key for line in order.lines], [specimen.id for specimen in order.specimens]) == (["L2"], ["s2"])
    with pytest.raises(DataInvalidError):
        mapped(accepted=("t9",))


# --- the patient ------------------------------------------------------------------------------------------------------


def named(*names: dict[str, Any]) -> OrderPatient:
    return mapped(put(patient, "name", to=list(names))).patient


def test_anonymous_patient_passed_on() -> None:
    found = named({"family": "0123456789", "given": ["-", "-"]})
    assert (found.anonymous, found.family, found.given, found.gender) == (True, "0123456789", (), "female")


def test_global_identifier_passed_on() -> None:
    subject = {"identifier": {"system": "urn:global", "value": "G1"}}
    found = mapped(put(pr1, "subject", to=subject), put(pr2, "subject", to=subject)).patient
    assert found.global_identifier is not None
    assert (found.global_identifier.value, found.family, found.gender) == ("G1", None, None)


def test_patient_has_the_services_id_with_its_system() -> None:
    identifier = Identifier(system="https://exchange.example/api/fhir/Patient", value="p1")
    assert mapped().patient.service_identifier == identifier


def test_current_name_counts_and_the_others_are_passed_on() -> None:
    old = {"use": "old", "family": "Byron", "given": ["Ada"], "period": {"end": "2001-05-03"}}
    usual = {"use": "usual", "family": "Lovelace", "given": ["Ada", "King"]}
    found = named(old, usual, {"text": "Countess of Lovelace"})
    assert (found.family, found.given, found.name_text) == ("Lovelace", ("Ada", "King"), None)
    byron = PatientName(use="old", family="Byron", given=("Ada",))
    assert found.other_names == (byron, PatientName(text="Countess of Lovelace"))


@pytest.mark.parametrize("more", [{}, {"given": ["Ada", "King"]}])
def test_name_without_family_is_passed_on_whole(more: dict[str, Any]) -> None:
    found = named({"text": "Lovelace Ada King", **more})
    assert (found.family, found.given, found.name_text) == ("Lovelace Ada King", (), "Lovelace Ada King")


# --- numbers: which of several counts is decided in domain/order_numbers ----------------------------------------------


def numbered(identifiers: list[dict[str, str]], where: Any = s1) -> Change:
    return lambda wire: where(wire)["container"][0].update(identifier=identifiers)


OURS, RACK = {"system": LABELS, "value": "10000001"}, {"system": "https://clinic.example/racks", "value": "R7"}


@pytest.mark.parametrize(
    ("others", "second", "other"),
    [
        ([{"system": LABELS, "value": "1234-5678"}], "1234-5678", []),
        ([{"value": "77"}], None, ["77"]),
        ([RACK, {"system": "urn:misspelt", "value": "1234-5678"}], "1234-5678", ["R7"]),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_numbers_of_a_tube_are_told_apart(order: int, others: list[Any], second: str | None, other: list[str]) -> None:
    tube = mapped(numbered([OURS, *others][::order])).specimens[0].containers[0]
    assert (tube.barcode, tube.second_barcode) == ("10000001", second)
    assert [each.value for each in tube.other_identifiers] == other
    if second and not other:
        unset = mapped(numbered([OURS, {"value": second}]), systems=replace(SYSTEMS, second_labels_system=None))
        assert unset.specimens[0].containers[0].second_barcode == second


def test_clinics_number_on_a_tube_without_second_barcode_is_none() -> None:
    """It has the form that a test of another tube needs."""
    tube = mapped(numbered([OURS, {"system": "urn:clinic", "value": "1234-5678"}], s2)).specimens[1].containers[0]
    assert (tube.second_barcode, [each.value for each in tube.other_identifiers]) == (None, ["1234-5678"])


def test_old_order_number_is_told_by_its_system() -> None:
    numbers = [{"identifier": {"system": system, "value": str(place)}} for place, system in enumerate((LABELS, MIS))]
    assert mapped(put(pr1, "basedOn", to=numbers)).lines[0].old_order_number == "1"


# --- specimens, times, answers ----------------------------------------------------------------------------------------


def test_body_site_and_supporting_info_are_those_of_the_tube() -> None:
    def extensions(wire: Wire) -> None:
        found = s1(wire)["extension"]
        found[0]["valueString"] = "site=THR"
        found[:0] = [{"url": url, "valueString": "site=X"} for url in ("https://else.example/extra/supportingInfo", "urn:x")]

    order = mapped(extensions, put(s2, "collection", "bodySite", to={"coding": [{"code": "NOS"}]}))
    assert [specimen.body_site for specimen in order.specimens] == ["THR", "NOS"]
    assert order.specimens[0].supporting_info == "site=THR"


def test_line_without_time_uses_first_fetch_time() -> None:
    """A line without a time is as old as the first fetch."""
    timeless = [put(each, "occurrenceDateTime", to="2026-03-02T09:00:00") for each in (pr1, pr2)]
    assert mapped(*timeless).ordered_at == SEEN


def test_collection_period_is_passed_on() -> None:
    period = {"start": "2026-03-01T08:00:00+03:00", "end": "2026-03-02T08:00:00+03:00"}
    specimen = mapped(put(s1, "collection", to={"collectedPeriod": period})).specimens[0]
    assert [each and each.isoformat() for each in (specimen.collected_at, specimen.collected_until)] == list(period.values())


def test_other_codes_are_passed_on() -> None:
    order = mapped(lambda wire: pr1(wire)["code"]["coding"].append({"system": "http://loinc.org", "code": "57021-8"}))
    assert order.lines[0].other_codes == (Coding(system="http://loinc.org", code="57021-8"),)


def test_answers_of_two_repeats_are_told_apart() -> None:
    def dose(number: int) -> list[dict[str, Any]]:
        return [{"linkId": "dose", "answer": [{"valueInteger": number}]}]

    repeated = [{"linkId": "order", "item": [{"linkId": "drug", "item": dose(each)} for each in (1, 2)]}]
    found = [(format_answer_path(one.path), one.values) for one in mapped(put(answers, "item", to=repeated)).answers]
    assert found == [("order/drug[1]/dose", (1,)), ("order/drug[2]/dose", (2,))]
    below = [{"linkId": "drug", "answer": [{"valueString": name, "item": dose(0)} for name in "ab"]}]
    found = [format_answer_path(one.path) for one in mapped(put(answers, "item", to=below)).answers]
    assert found == ["drug", "drug[1]/dose", "drug[2]/dose"]
