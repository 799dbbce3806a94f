from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from lab_agent.domain.received import ResourceRef
from lab_agent.errors import DataInvalidError
from lab_agent.fhir.graph import OrderGraph


def _start(wire: dict[str, Any]) -> OrderGraph:
    return OrderGraph(wire["base_url"], wire["order_task"], tuple(wire["line_tasks"]))


def test_the_loop_reads_everything_and_ends(wire: dict[str, Any]) -> None:
    graph, rounds = _start(wire), []
    while wanted := graph.missing_references():
        rounds.append({str(ref) for ref in wanted})
        for ref in wanted:
            graph = graph.with_resource(ref, wire["resources"][f"{ref.type}/{ref.id}"])
    assert rounds == [{"procedurerequest/pr1", "procedurerequest/pr2"}, {"patient/p1", "specimen/s1", "specimen/s2"}]
    assert graph.procedure_request_ids() == ("pr1", "pr2")


def test_what_cannot_be_read_is_wanted_no_more_until_forgotten(wire: dict[str, Any]) -> None:
    graph = _start(wire).with_unreadable(ResourceRef("ProcedureRequest", "pr1"), "no right", 403)
    assert graph.missing_references() == {ResourceRef("ProcedureRequest", "pr2")}
    assert graph.forget_unreadable().missing_references() == _start(wire).missing_references()
    mended = graph.with_resource(ResourceRef("ProcedureRequest", "pr1"), wire["resources"]["ProcedureRequest/pr1"])
    assert not mended.unreadable


def test_answers_are_wanted_where_a_typed_reference_names_them(wire: dict[str, Any]) -> None:
    wire["order_task"]["input"].append({"valueReference": {"reference": "questionnaireresponse/a"}})
    wire["resources"]["ProcedureRequest/pr1"]["supportingInfo"].append({"reference": "QuestionnaireResponse/b"})
    graph = _start(wire)
    assert ResourceRef("QuestionnaireResponse", "a") in graph.missing_references()
    graph = graph.with_resource(ResourceRef("ProcedureRequest", "pr1"), wire["resources"]["ProcedureRequest/pr1"])
    assert ResourceRef("QuestionnaireResponse", "b") in graph.missing_references()


def test_nothing_foreign_or_of_another_type_is_wanted(wire: dict[str, Any]) -> None:
    wire["line_tasks"][0]["basedOn"] = [{"reference": "https://evil.example/ProcedureRequest/1"}, {"reference": "patient/2"}, 7]
    wire["line_tasks"][1]["basedOn"] = "junk"
    assert _start(wire).missing_references() == frozenset()


def test_it_is_kept_in_two_parts_and_comes_back_with_its_digits(wire: dict[str, Any], graph_from_wire: Any) -> None:
    graph = graph_from_wire(wire).with_unreadable(ResourceRef("Specimen", "s9"), "no right", 403)
    kept = graph.to_json()
    assert b"0.80" in kept.medical
    for secret in (b"Lovelace", b"1990-12-10", b"+700"):
        assert secret not in kept.medical
    again = OrderGraph.from_json(kept.medical, kept.identification)
    assert again.to_json() == kept
    assert again.unreadable == graph.unreadable
    assert again.missing_references() == frozenset()


def test_a_purged_patient_is_unreadable_and_not_wanted(wire: dict[str, Any], graph_from_wire: Any) -> None:
    again = OrderGraph.from_json(graph_from_wire(wire).to_json().medical, None)
    assert again.missing_references() == frozenset()
    assert "purged" in again.unreadable[ResourceRef("Patient", "p1")].reason


def test_the_input_is_not_changed(wire: dict[str, Any], graph_from_wire: Any) -> None:
    before = deepcopy(wire)
    graph_from_wire(wire).to_json()
    assert wire == before


@pytest.mark.parametrize("medical", [b"{}", b"[]", b'{"patients": 5}', b"junk"])
def test_what_is_not_a_graph_says_so(medical: bytes) -> None:
    with pytest.raises(DataInvalidError):
        OrderGraph.from_json(medical, None)
