from __future__ import annotations

from typing import Any

import pytest

from lab_agent.fhir.order_graph import OrderGraph
from lab_agent.fhir.order_parser import parse_order
from lab_agent.fhir.received_order import ResourceRef
from lab_agent.shared import exact_json
from lab_agent.shared.errors import DataInvalidError
from tests.unit.fhir.sample import Wire, graph_of, order_wire, pr1

PR1 = ResourceRef("ProcedureRequest", "pr1")


def _start(wire: Wire) -> OrderGraph:
    return OrderGraph(wire["base_url"], wire["order_task"], tuple(wire["line_tasks"]))


def test_fetch_loop_reads_everything_and_ends() -> None:
    wire = order_wire()
    graph, rounds = _start(wire), []
    while wanted := graph.missing_references():
        rounds.append({str(ref) for ref in wanted})
        for ref in wanted:
            graph = graph.with_resource(ref, wire["resources"][f"{ref.type}/{ref.id}"])
    assert rounds == [{"procedurerequest/pr1", "procedurerequest/pr2"}, {"patient/p1", "specimen/s1", "specimen/s2"}]
    assert graph.procedure_request_ids() == ("pr1", "pr2")


def test_unreadable_resource_not_requested_again() -> None:
    wire = order_wire()
    graph = _start(wire).with_unreadable(PR1, "no right", 403)
    assert graph.missing_references() == {ResourceRef("ProcedureRequest", "pr2")}
    assert not graph.with_resource(PR1, pr1(wire)).unreadable


def test_references_are_followed_by_their_type_alone() -> None:
    """Nothing foreign or of another type is requested."""
    wire = order_wire()
    wire["order_task"]["input"].append({"valueReference": {"reference": "questionnaireresponse/a"}})
    pr1(wire)["supportingInfo"].append({"reference": "QuestionnaireResponse/b"})
    graph = _start(wire)
    assert ResourceRef("QuestionnaireResponse", "a") in graph.missing_references()
    assert ResourceRef("QuestionnaireResponse", "b") in graph.with_resource(PR1, pr1(wire)).missing_references()
    wire = order_wire()
    wire["line_tasks"][0]["basedOn"] = [{"reference": "https://evil.example/ProcedureRequest/1"}, {"reference": "patient/2"}, 7]
    wire["line_tasks"][1]["basedOn"] = "junk"
    assert _start(wire).missing_references() == frozenset()


def test_graph_round_trips_split_with_exact_digits() -> None:
    """The graph is kept in two parts, medical and identifying, and comes back with its digits."""
    wire = order_wire()
    graph = graph_of(wire).with_unreadable(ResourceRef("Specimen", "s9"), "no right", 403)
    kept = graph.to_json()
    assert wire == order_wire()
    assert b"0.80" in kept.medical
    for secret in (b"Lovelace", b"1990-12-10", b"+700"):
        assert secret not in kept.medical
    again = OrderGraph.from_json(kept.medical, kept.identification)
    assert again.to_json() == kept
    assert again.unreadable == graph.unreadable
    assert again.missing_references() == frozenset()
    purged = OrderGraph.from_json(graph_of(wire).to_json().medical, None)
    assert purged.missing_references() == frozenset()
    assert "purged" in purged.unreadable[ResourceRef("Patient", "p1")].reason


@pytest.mark.parametrize(
    ("key", "text", "read"),
    [
        ("note", [{"text": "Call Anna Canary"}], {"ProcedureRequest"}),
        ("extension", [{"url": "urn:x", "valueString": "Anna Canary"}], {"Specimen"}),
        ("description", "Anna Canary", set()),
        ("status", {"text": "Anna Canary"}, set()),
        ("meta", {"security": ["Anna Canary"], "tag": [{"code": "Anna Canary"}]}, set()),
        ("aFieldThatNobodyKnows", {"anything": ["Anna Canary"]}, set()),
    ],
)
def test_texts_are_kept_apart_or_not_at_all(key: str, text: Any, read: set[str]) -> None:
    """None is in the medical part; what is read of them is there for whoever has the other, and as malformed as it was."""
    wire = order_wire()
    for body in (wire["order_task"], *wire["line_tasks"], *wire["resources"].values()):
        body[key] = text
    graph = graph_of(wire)
    kept = graph.to_json()
    assert b"Canary" not in kept.medical
    again = OrderGraph.from_json(kept.medical, kept.identification)
    assert {ref.type for ref, body in again.resources.items() if body.get(key) == text} - {"Patient"} == read
    assert parse_order(again).malformed_fields == parse_order(graph).malformed_fields


def test_patients_number_is_sealed_and_comes_back() -> None:
    wire = order_wire()
    for body in wire["resources"].values():
        body["subject"] = {"identifier": {"system": "urn:policy", "value": "CANARY-7"}, "display": "Anna"}
    answers = [{"resourceType": "QuestionnaireResponse", "id": "q", "source": {"identifier": {"value": "CANARY-7"}}}]
    graph = graph_of(wire).with_questionnaire_responses(answers)
    kept = graph.to_json()
    assert b"CANARY" not in kept.medical
    again = parse_order(OrderGraph.from_json(kept.medical, kept.identification))
    assert again.patient_reference == "urn:policy|CANARY-7"
    assert again.responses == parse_order(graph).responses


def test_graph_of_the_former_version_keeps_its_notes() -> None:
    kept = graph_of(order_wire()).to_json()
    former = {**exact_json.loads(kept.identification), "notes": [["ProcedureRequest", "pr1", [{"text": "urgent"}]]]}
    del former["sealed"], former["sealed_responses"]
    again = OrderGraph.from_json(kept.medical, exact_json.dumps(former))
    assert again.resources[PR1]["note"] == [{"text": "urgent"}]


@pytest.mark.parametrize("medical", [b"{}", b"[]", b'{"patients": 5}', b"junk"])
def test_invalid_graph_rejected(medical: bytes) -> None:
    with pytest.raises(DataInvalidError):
        OrderGraph.from_json(medical, None)
