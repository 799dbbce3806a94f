from __future__ import annotations

from typing import Any

import pytest

from lab_agent.rules.engine import RULES, check_messages, check_severities
from lab_agent.rules.rule import Severity, format_message


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
