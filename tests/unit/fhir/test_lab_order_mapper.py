from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from lab_agent.domain.code_systems import CodeSystems
from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.lab_order import LabOrder, NotificationOption, PatientName, format_answer_path
from lab_agent.domain.values import Coding, Identifier
from lab_agent.errors import DataInvalidError
from lab_agent.fhir.lab_order_mapper import make_lab_order
from lab_agent.fhir.order_parser import parse_order

SEEN = datetime(2026, 3, 2, 12, tzinfo=UTC)


class FakeCatalogue:
    def lab_code(self, contract: str, item_id: str) -> str | None:
        return {("C-100", "001.001"): "CBC5"}.get((contract, item_id))

    def is_second_label(self, contract: str, item_ids: Collection[str], value: str) -> bool:
        return "001.001" in item_ids and value.count("-") == 1

    def body_site(self, supporting_info: str) -> str | None:
        return supporting_info.partition("site=")[2] or None


def _order(graph: Any, systems: CodeSystems, *accepted: str) -> LabOrder:
    return make_lab_order(
        parse_order(graph),
        accepted or ("t1", "t2"),
        order_key=OrderKey("RKEY"),
        line_keys={"t1": LineKey("L1"), "t2": LineKey("L2")},
        contract="C-100",
        catalogue=FakeCatalogue(),
        systems=systems,
        first_seen_at=SEEN,
    )


def test_order_mapped_to_laboratory_terms(wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems) -> None:
    order = _order(graph_from_wire(wire), systems)
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


def test_only_accepted_lines_and_their_specimens_included(
    wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems
) -> None:
    order = _order(graph_from_wire(wire), systems, "t2")
    assert [line.key for line in order.lines] == ["L2"]
    assert [specimen.id for specimen in order.specimens] == ["s2"]


def test_anonymous_patient_passed_on(wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems) -> None:
    wire["resources"]["Patient/p1"]["name"] = [{"family": "0123456789", "given": ["-", "-"]}]
    patient = _order(graph_from_wire(wire), systems).patient
    assert (patient.anonymous, patient.family, patient.given, patient.gender) == (True, "0123456789", (), "female")


def test_global_identifier_passed_on(wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems) -> None:
    for name in ("pr1", "pr2"):
        wire["resources"][f"ProcedureRequest/{name}"]["subject"] = {"identifier": {"system": "urn:global", "value": "G1"}}
    patient = _order(graph_from_wire(wire), systems).patient
    assert patient.global_identifier is not None
    assert (patient.global_identifier.value, patient.family, patient.gender) == ("G1", None, None)


@pytest.mark.parametrize("system", ["https://lab.example/second-labels", "https://lab.example/second-labels/", "urn:misspelt"])
@pytest.mark.parametrize("order", [1, -1])
def test_second_barcode_recognised_by_its_system(
    wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems, order: int, system: str
) -> None:
    container = wire["resources"]["Specimen/s1"]["container"][0]
    both = [*container["identifier"], {"system": system, "value": "1234-5678"}]
    container["identifier"] = both[::order]
    tube = _order(graph_from_wire(wire), systems).specimens[0].containers[0]
    assert (tube.barcode, tube.second_barcode) == ("10000001", "1234-5678")


@pytest.mark.parametrize("clinic", [{"value": "77"}, {"system": "http://clinic.example/labels", "value": "77"}])
@pytest.mark.parametrize("order", [1, -1])
def test_barcode_in_the_system_counts_before_any_other_number(
    wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems, order: int, clinic: dict[str, str]
) -> None:
    container = wire["resources"]["Specimen/s1"]["container"][0]
    container["identifier"] = [*container["identifier"], clinic][::order]
    tube = _order(graph_from_wire(wire), systems).specimens[0].containers[0]
    assert (tube.barcode, tube.second_barcode, [each.value for each in tube.other_identifiers]) == ("10000001", None, ["77"])


@pytest.mark.parametrize("setting", ["https://lab.example/second-labels", None])
@pytest.mark.parametrize("system", [None, "https://lab.example/codes/labels"])
@pytest.mark.parametrize("order", [1, -1])
def test_second_barcode_recognised_by_its_form(
    wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems, order: int, system: str | None, setting: str | None
) -> None:
    container = wire["resources"]["Specimen/s1"]["container"][0]
    both = [*container["identifier"], {"system": system, "value": "1234-5678"}]
    container["identifier"] = both[::order]
    tube = _order(graph_from_wire(wire), replace(systems, second_labels_system=setting)).specimens[0].containers[0]
    assert (tube.barcode, tube.second_barcode, tube.other_identifiers) == ("10000001", "1234-5678", ())


def test_old_order_number_in_the_system_counts_before_any_other(
    wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems
) -> None:
    right = {"system": "https://lab.example/codes/mis", "value": "12345-AB1CD-12345678"}
    wire["resources"]["ProcedureRequest/pr1"]["basedOn"] = [{"identifier": {"value": "77"}}, {"identifier": right}]
    assert _order(graph_from_wire(wire), systems).lines[0].old_order_number == "12345-AB1CD-12345678"


@pytest.mark.parametrize(
    ("systems_given", "number"),
    [
        (("https://lab.example/codes/mis/",), "0"),
        ((None,), "0"),
        (("https://other.example/mis",), None),
        (("urn:clinic", "https://lab.example/codes/labels"), None),
        (("https://lab.example/codes/mis", "https://lab.example/codes/mis"), None),
        (("https://other.example/mis", "https://lab.example/codes/mis"), "1"),
    ],
)
def test_old_order_number_is_told_by_its_system(
    wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems, systems_given: tuple[str | None, ...], number: str | None
) -> None:
    given = [{"identifier": {"system": system, "value": str(place)}} for place, system in enumerate(systems_given)]
    wire["resources"]["ProcedureRequest/pr1"]["basedOn"] = given
    assert _order(graph_from_wire(wire), systems).lines[0].old_order_number == number


def test_clinics_number_on_a_tube_without_second_barcode_is_none(
    wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems
) -> None:
    """It has the form that a test of another tube needs."""
    wire["resources"]["Specimen/s2"]["container"][0]["identifier"].append({"system": "urn:clinic", "value": "1234-5678"})
    tube = _order(graph_from_wire(wire), systems).specimens[1].containers[0]
    assert (tube.second_barcode, [each.value for each in tube.other_identifiers]) == (None, ["1234-5678"])


def test_supporting_info_is_the_extension_of_its_address(
    wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems
) -> None:
    extensions = wire["resources"]["Specimen/s1"]["extension"]
    right = extensions[0]["valueString"]
    extensions[:0] = [{"url": url, "valueString": "site=X"} for url in ("https://else.example/extra/supportingInfo", "urn:x")]
    assert _order(graph_from_wire(wire), systems).specimens[0].supporting_info == right


def test_follow_up_study_includes_previous_order_number(wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems) -> None:
    identifier = {"system": "https://lab.example/codes/mis", "value": "12345-AB1CD-12345678"}
    wire["resources"]["ProcedureRequest/pr1"]["basedOn"] = [{"identifier": identifier}]
    assert _order(graph_from_wire(wire), systems).lines[0].old_order_number == "12345-AB1CD-12345678"


def test_body_site_from_collection_or_supporting_info(wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems) -> None:
    wire["resources"]["Specimen/s1"]["extension"][0]["valueString"] = "site=THR"
    wire["resources"]["Specimen/s2"]["collection"]["bodySite"] = {"coding": [{"code": "NOS"}]}
    assert [specimen.body_site for specimen in _order(graph_from_wire(wire), systems).specimens] == ["THR", "NOS"]


def test_line_without_time_uses_first_fetch_time(wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems) -> None:
    """A line without a time is as old as the first fetch."""
    for name in ("pr1", "pr2"):
        wire["resources"][f"ProcedureRequest/{name}"]["occurrenceDateTime"] = "2026-03-02T09:00:00"
    assert _order(graph_from_wire(wire), systems).ordered_at == SEEN


def test_order_without_accepted_lines_reported(wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems) -> None:
    with pytest.raises(DataInvalidError):
        _order(graph_from_wire(wire), systems, "t9")


def test_patient_has_the_services_id_with_its_system(wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems) -> None:
    identifier = Identifier(system="https://exchange.example/api/fhir/Patient", value="p1")
    assert _order(graph_from_wire(wire), systems).patient.service_identifier == identifier


def test_current_name_counts_and_the_others_are_passed_on(
    wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems
) -> None:
    wire["resources"]["Patient/p1"]["name"] = [
        {"use": "old", "family": "Byron", "given": ["Ada"], "period": {"end": "2001-05-03"}},
        {"use": "usual", "family": "Lovelace", "given": ["Ada", "King"]},
        {"text": "Countess of Lovelace"},
    ]
    patient = _order(graph_from_wire(wire), systems).patient
    assert (patient.family, patient.given, patient.name_text) == ("Lovelace", ("Ada", "King"), None)
    assert patient.other_names == (
        PatientName(use="old", family="Byron", given=("Ada",)),
        PatientName(text="Countess of Lovelace"),
    )


def test_name_that_is_only_text_is_passed_on(wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems) -> None:
    wire["resources"]["Patient/p1"]["name"] = [{"text": "Ada Lovelace"}]
    patient = _order(graph_from_wire(wire), systems).patient
    assert (patient.family, patient.name_text, patient.given) == ("Ada Lovelace", "Ada Lovelace", ())


def test_name_without_family_is_passed_on_whole(wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems) -> None:
    wire["resources"]["Patient/p1"]["name"] = [{"text": "Lovelace Ada King", "given": ["Ada", "King"]}]
    patient = _order(graph_from_wire(wire), systems).patient
    assert (patient.family, patient.given, patient.name_text) == ("Lovelace Ada King", (), "Lovelace Ada King")


def test_answers_of_two_repeats_are_told_apart(wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems) -> None:
    def drug(dose: int) -> dict[str, Any]:
        return {"linkId": "drug", "item": [{"linkId": "dose", "answer": [{"valueInteger": dose}]}]}

    wire["questionnaire_responses"][0]["item"] = [{"linkId": "order", "item": [drug(1), drug(2)]}]
    answers = _order(graph_from_wire(wire), systems).answers
    assert [(format_answer_path(one.path), one.values) for one in answers] == [
        ("order/drug[1]/dose", (1,)),
        ("order/drug[2]/dose", (2,)),
    ]


def test_answers_below_two_answers_are_told_apart(wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems) -> None:
    def drug(name: str) -> dict[str, Any]:
        return {"valueString": name, "item": [{"linkId": "dose", "answer": [{"valueInteger": 0}]}]}

    wire["questionnaire_responses"][0]["item"] = [{"linkId": "drug", "answer": [drug("a"), drug("b")]}]
    found = [format_answer_path(one.path) for one in _order(graph_from_wire(wire), systems).answers]
    assert found == ["drug", "drug[1]/dose", "drug[2]/dose"]


def test_collection_period_is_passed_on(wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems) -> None:
    period = {"start": "2026-03-01T08:00:00+03:00", "end": "2026-03-02T08:00:00+03:00"}
    wire["resources"]["Specimen/s1"]["collection"] = {"collectedPeriod": period}
    specimen = _order(graph_from_wire(wire), systems).specimens[0]
    assert [each and each.isoformat() for each in (specimen.collected_at, specimen.collected_until)] == list(period.values())


def test_other_codes_and_numbers_are_passed_on(wire: dict[str, Any], graph_from_wire: Any, systems: CodeSystems) -> None:
    wire["resources"]["ProcedureRequest/pr1"]["code"]["coding"].append({"system": "http://loinc.org", "code": "57021-8"})
    rack = {"system": "https://clinic.example/racks", "value": "R7"}
    second = {"system": "urn:misspelt", "value": "1234-5678"}
    wire["resources"]["Specimen/s1"]["container"][0]["identifier"] += [rack, second]
    order = _order(graph_from_wire(wire), systems)
    tube = order.specimens[0].containers[0]
    assert order.lines[0].other_codes == (Coding(system="http://loinc.org", code="57021-8"),)
    assert (tube.barcode, tube.second_barcode) == ("10000001", "1234-5678")
    assert tube.other_identifiers == (Identifier(system=rack["system"], value="R7"),)
