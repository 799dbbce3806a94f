from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from lab_agent.rules.engine import RULES, Assessment, LineAssessment, check_messages, check_severities
from lab_agent.rules.rule import Finding, Severity, format_message


def test_valid_order_is_accepted_without_findings(wire: dict[str, Any], assess_wire: Any) -> None:
    judgement = assess_wire(wire)
    assert judgement.findings() == ()
    assert judgement.accepted_lines == ("t1", "t2")


def test_bad_line_does_not_affect_other_line(wire: dict[str, Any], assess_wire: Any) -> None:
    wire["resources"]["ProcedureRequest/pr1"]["status"] = "draft"
    judgement = assess_wire(wire)
    assert judgement.accepted_lines == ("t2",)
    assert judgement.rejection_reasons("t2") == ()
    (reason,) = judgement.rejection_reasons("t1")
    assert reason.startswith("ProcedureRequest[0].status (procedurerequest/pr1): ")
    assert [each.where for each in judgement.findings()] == ["ProcedureRequest[0].status"]
    assert judgement.rejecting_rules() == {"line.status"}


def test_all_violations_of_line_are_reported(wire: dict[str, Any], assess_wire: Any) -> None:
    request = wire["resources"]["ProcedureRequest/pr1"]
    request["status"] = "draft"
    del request["code"]
    wire["resources"]["Specimen/s1"]["container"][0]["identifier"] = []
    found = {finding.rule for finding in assess_wire(wire).lines["t1"].rejections}
    assert found == {"line.status", "line.code", "tube.label"}


def test_order_violation_rejects_every_line(wire: dict[str, Any], assess_wire: Any) -> None:
    wire["resources"]["ProcedureRequest/pr1"]["requisition"]["value"] = "other"
    judgement = assess_wire(wire)
    assert judgement.accepted_lines == ()
    assert [finding.line for finding in judgement.order_rejections] == [None]
    assert judgement.rejection_reasons("t1") == judgement.rejection_reasons("t2") != ()


def test_possible_fault_of_ours_holds_whole_order(wire: dict[str, Any], assess_wire: Any) -> None:
    """What may be our own fault holds the order and accepts nothing."""
    judgement = assess_wire(wire, catalogue=None)
    assert [finding.rule for finding in judgement.holds] == ["order.catalogue"]
    assert judgement.order_rejections == ()
    assert judgement.accepted_lines == ()


def test_severities_are_overridden_where_rule_allows(wire: dict[str, Any], assess_wire: Any) -> None:
    wire["resources"]["ProcedureRequest/pr1"]["status"] = "draft"
    assert assess_wire(wire, severities={"line.status": "warn"}).accepted_lines == ("t1", "t2")
    assert assess_wire(wire, severities={"line.status": "off"}).findings() == ()
    assert assess_wire(wire, catalogue=None, severities={"order.catalogue": "refuse"}).holds


def test_invalid_severity_settings_are_reported() -> None:
    problems = check_severities({"line.status": "warn", "line.nosuch": "warn", "order.catalogue": "refuse", "line.code": "loud"})
    assert [problem.where for problem in problems] == ["rules.line.nosuch", "rules.order.catalogue", "rules.line.code"]
    assert check_severities({"order.readable": "refuse"}) == ()


def test_status_of_unreadable_resource_told_once(wire: dict[str, Any], assess_wire: Any) -> None:
    del wire["resources"]["Specimen/s1"]
    wire["unreadable"] = ["Specimen/s1"]
    (found,) = [each for each in assess_wire(wire).findings() if each.rule == "order.readable"]
    assert "this resource: reading it was answered with 403 (forbidden). Please" in found.message


def test_messages_are_translated(wire: dict[str, Any], assess_wire: Any) -> None:
    wire["resources"]["ProcedureRequest/pr1"]["status"] = "draft"
    assert (
        assess_wire(wire, messages={"line.status": "{where}: статус {status}"})
        .rejection_reasons("t1")[0]
        .endswith("статус draft")
    )
    problems = check_messages({"line.status": "{where} {nosuch}", "x": ""})
    assert [problem.where for problem in problems] == ["messages.line.status", "messages.x"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_has_source_and_hint(rule: Any) -> None:
    room, _, name = rule.id.partition(".")
    assert room
    assert name
    assert rule.section
    assert rule.severity is not Severity.OFF
    assert rule.message.startswith("{where}: ")
    assert rule.message.count(". ") >= 1 or "," in rule.message
    assert rule.message.endswith(".")


def test_rule_ids_are_unique() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)


def test_partner_text_is_shortened_to_one_line() -> None:
    shown = format_message("{where}: {text}", "x", {"text": "a\nb\x00{where}" + "c" * 500})
    assert "\n" not in shown
    assert "{where}" in shown
    assert len(shown) < 120


def finding(rule: str, severity: Severity, line: str | None = None) -> Finding:
    return Finding(rule, severity, "Task", f"{rule} says no", line)


BOTH = Assessment(
    order_rejections=(finding("order.x", Severity.REFUSE),),
    lines={
        "t1": LineAssessment((finding("line.a", Severity.REFUSE, "t1"),), (finding("line.w", Severity.WARN, "t1"),)),
        "t2": LineAssessment(rejections=(finding("line.b", Severity.REFUSE, "t2"), finding("order.x", Severity.REFUSE, "t2"))),
    },
    warnings=(finding("order.w", Severity.WARN),),
)


@pytest.mark.parametrize(
    ("tasks", "rules"),
    [
        (None, {"order.x", "line.a", "line.b"}),
        (["t1"], {"order.x", "line.a"}),
        (["t2", "t9"], {"order.x", "line.b"}),
        (["t9"], set()),
        ([], set()),
    ],
)
def test_rejecting_rules_are_those_of_the_lines(tasks: list[str] | None, rules: set[str]) -> None:
    assert BOTH.rejecting_rules(tasks) == rules


def test_order_without_lines_is_rejected_by_its_own_rules() -> None:
    assert Assessment(order_rejections=BOTH.order_rejections).rejecting_rules() == {"order.x"}


def test_reasons_of_order_come_before_those_of_line_and_once() -> None:
    assert BOTH.rejection_reasons("t1") == ("order.x says no", "line.a says no")
    assert BOTH.rejection_reasons("t2") == ("order.x says no", "line.b says no")
    assert BOTH.rejection_reasons("t9") == ("order.x says no",)


def test_all_findings_are_told_in_order() -> None:
    assert [each.rule for each in BOTH.findings()] == ["order.x", "order.w", "line.a", "line.w", "line.b", "order.x"]
    held = Assessment(holds=(finding("order.h", Severity.HOLD),), warnings=BOTH.warnings)
    assert [each.rule for each in held.findings()] == ["order.h", "order.w"]
    assert held.accepted_lines == BOTH.accepted_lines == ()


def test_digest_is_of_what_was_found(wire: dict[str, Any], assess_wire: Any) -> None:
    wire["resources"]["ProcedureRequest/pr1"]["status"] = "draft"
    (found,) = assess_wire(wire).findings()
    about = ["line.status", "procedurerequest/pr1", "status", ["t1"], []]
    assert found.digest == hashlib.sha256(json.dumps(about).encode()).hexdigest()


def test_digest_stays_when_resources_are_numbered_anew(wire: dict[str, Any], assess_wire: Any) -> None:
    wire["resources"]["Specimen/s1"]["collection"]["collectedDateTime"] = "2026-03-02T13:00:00+00:00"
    (before,) = assess_wire(wire).findings()
    wire["line_tasks"].reverse()
    (after,) = assess_wire(wire).findings()
    assert (before.where.split(".")[0], after.where.split(".")[0]) == ("Specimen[0]", "Specimen[1]")
    assert before.digest == after.digest


def test_digest_tells_places_apart_that_are_no_resource(wire: dict[str, Any], assess_wire: Any) -> None:
    del wire["resources"]["Specimen/s1"], wire["resources"]["Patient/p1"]
    found = [each for each in assess_wire(wire).findings() if each.rule == "order.readable"]
    assert [each.where for each in found] == ["patient/p1", "specimen/s1"]
    assert len({each.digest for each in found}) == 2


def test_place_is_told_with_its_resource(wire: dict[str, Any], assess_wire: Any) -> None:
    wire["resources"]["Specimen/s1"]["collection"]["collectedDateTime"] = "2026-03-02T13:00:00+00:00"
    (deep,) = assess_wire(wire).findings()
    assert deep.message.startswith("Specimen[0].collection.collectedDateTime (specimen/s1): ")
    (elsewhere,) = assess_wire(wire, catalogue=None).holds[:1]
    assert elsewhere.message.startswith("catalogue: ")


def test_rule_that_is_off_finds_nothing_released(wire: dict[str, Any], assess_wire: Any) -> None:
    wire["resources"]["Specimen/s1"]["collection"]["collectedDateTime"] = "2026-03-02T13:00:00+00:00"
    (held,) = assess_wire(wire).findings()
    assert assess_wire(wire, severities={"specimen.collected-ahead": "off"}, released={held.digest}).findings() == ()


def test_released_finding_only_warns(wire: dict[str, Any], assess_wire: Any, facts: Any) -> None:
    wire["resources"]["Specimen/s1"]["collection"]["collectedDateTime"] = "2026-03-02T13:00:00+00:00"
    (held,) = assess_wire(wire).findings()
    assert (held.rule, held.severity) == ("specimen.collected-ahead", Severity.HOLD)
    (released,) = assess_wire(wire, released={held.digest}).findings()
    assert (released.rule, released.severity) == ("specimen.collected-ahead", Severity.WARN)
    refused = assess_wire(wire, severities={"specimen.collected-ahead": "refuse"}).findings()
    assert [each.severity for each in refused] == [Severity.REFUSE] * len(refused)
    wire["resources"]["Specimen/s1"]["collection"]["collectedDateTime"] = "2026-03-02T14:00:00+00:00"
    assert assess_wire(wire, released={held.digest}).holds


def test_rejection_is_not_released(wire: dict[str, Any], assess_wire: Any) -> None:
    wire["resources"]["ProcedureRequest/pr1"]["status"] = "draft"
    (found,) = assess_wire(wire).findings()
    assert assess_wire(wire, released={found.digest}).findings() == (found,)


def test_settings_problems_name_what_is_allowed() -> None:
    (severity,) = check_severities({"order.catalogue": "refuse"})
    assert "hold, warn" in severity.hint
    (placeholder,) = check_messages({"line.status": "{where} {b} {a}"})
    assert "a, b" in placeholder.what
    assert all(each.what and each.hint for each in (*check_severities({"x": "warn"}), *check_messages({"x": ""})))
