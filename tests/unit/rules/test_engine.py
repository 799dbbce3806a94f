"""What the engine makes of the rules' findings: severities, lines, digests, messages, releases and settings."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from lab_agent.orders.records import HoldCause
from lab_agent.results.records import HoldReason
from lab_agent.rules.engine import (
    RELEASABLE_RULES,
    RULES,
    RULES_RELEASED_TOGETHER,
    Assessment,
    LineAssessment,
    check_messages,
    check_severities,
)
from lab_agent.rules.rule import Finding, Severity, Violation, format_message
from lab_agent.rules.translations import load_messages
from lab_agent.shared.conditions.orders_and_results import HOLD_CAUSES, RESULT_HOLDS
from lab_agent.shared.errors import SettingsError
from tests.harness.field_defaults import misnamed_codes, other_defaults
from tests.harness.paths import ROOT
from tests.unit.fhir.sample import Wire, pr1, put
from tests.unit.rules.sample import collected, item, judge, tube
from tools.docs.rules import render_rules_page

MESSAGES = ROOT / "config" / "messages"
LANGUAGES = sorted(path.stem for path in MESSAGES.glob("*.toml"))
DRAFT = put(pr1, "status", to="draft")
AHEAD = collected("2026-03-02T13:00:00+00:00")


# --- the rules as they are published ----------------------------------------------------------------------------------


def test_rules_page_is_current() -> None:
    """Run `make docs` when this fails. Ids and severities are in settings and in stored findings."""
    assert (ROOT / "docs" / "rules.md").read_text(encoding="utf-8") == render_rules_page(RULES)
    assert len({rule.id for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.severity is not Severity.OFF, rule.id
        assert rule.message.startswith("{where}: "), rule.id
        assert rule.message.endswith("."), rule.id


def test_rules_say_what_people_and_clocks_decide() -> None:
    """What holds because it may be our fault is not made a rejection by settings (law 10), but for the rules that say so."""
    each_alone = {"tube.label-several", "tube.label-in-use", "tube.second-label-system", "tube.second-label-unset"}
    each_alone.add("questionnaire.visible")
    assert {each.id for each in RULES if each.look_at_each} == each_alone
    assert {"order.clocks-differ", "specimen.collected-ahead", "tube.label-times"} == RULES_RELEASED_TOGETHER
    assert each_alone | RULES_RELEASED_TOGETHER == RELEASABLE_RULES
    by_clock = {"line.stopped-since", "line.time-future", "patient.birth-possible", "patient.anonymous"}
    by_clock |= {"specimen.collected-ahead", "specimen.collected-future"}
    assert {each.id for each in RULES if each.reads_clock} == by_clock
    for rule in RULES:
        only_held = rule.severity is Severity.HOLD and not rule.may_refuse
        assert rule.allowed_severities == ({Severity.HOLD, Severity.WARN} if only_held else set(Severity))


def test_missing_fields_are_nothing_and_codes_named_as_their_values() -> None:
    assert other_defaults("rules") == {
        "CatalogueHistory.cache_lifetime": timedelta(days=1),
        "Facts.label_pattern": r"[0-9A-Za-z][0-9A-Za-z._\-]{2,29}",
        "Facts.future_tolerance": timedelta(minutes=15),
        "Facts.alignment_tolerance": timedelta(minutes=15),
        "Facts.clock_tolerance": timedelta(minutes=2),
    }
    assert misnamed_codes("rules") == []


def test_words_are_of_what_can_hold() -> None:
    assert set(HOLD_CAUSES) == {*HoldCause, *(each.id for each in RULES if each.severity is Severity.HOLD)}
    assert set(RESULT_HOLDS) == set(HoldReason)


# --- what is made of findings -----------------------------------------------------------------------------------------


def test_bad_line_does_not_affect_other_line() -> None:
    assert (judge().findings(), judge().accepted_lines) == ((), ("t1", "t2"))
    judgement = judge(DRAFT)
    assert judgement.accepted_lines == ("t2",)
    assert judgement.rejection_reasons("t2") == ()
    (reason,) = judgement.rejection_reasons("t1")
    assert reason.startswith("ProcedureRequest[0].status (procedurerequest/pr1): ")
    assert [each.where for each in judgement.findings()] == ["ProcedureRequest[0].status"]
    assert judgement.rejecting_rules() == {"line.status"}


def test_all_violations_of_line_are_reported() -> None:
    judgement = judge(DRAFT, put(pr1, "code", to=None), put(tube, "identifier", to=[]))
    assert {finding.rule for finding in judgement.lines["t1"].rejections} == {"line.status", "line.code", "tube.label"}


def test_order_violation_rejects_every_line() -> None:
    judgement = judge(put(pr1, "requisition", "value", to="other"))
    assert judgement.accepted_lines == ()
    assert [finding.line for finding in judgement.order_rejections] == [None]
    assert judgement.rejection_reasons("t1") == judgement.rejection_reasons("t2") != ()


def test_possible_fault_of_ours_holds_whole_order() -> None:
    """What may be our own fault holds the order and accepts nothing."""
    judgement = judge(catalogue=None)
    assert [finding.rule for finding in judgement.holds] == ["order.catalogue"]
    assert (judgement.order_rejections, judgement.accepted_lines) == ((), ())


def test_severities_are_overridden_where_rule_allows() -> None:
    assert judge(DRAFT, severities={"line.status": "warn"}).accepted_lines == ("t1", "t2")
    assert judge(DRAFT, severities={"line.status": "off"}).findings() == ()
    assert judge(catalogue=None, severities={"order.catalogue": "refuse"}).holds


def test_invalid_severity_settings_are_reported() -> None:
    problems = check_severities({"line.status": "warn", "line.nosuch": "warn", "order.catalogue": "refuse", "line.code": "loud"})
    assert [problem.where for problem in problems] == ["rules.line.nosuch", "rules.order.catalogue", "rules.line.code"]
    assert all(each.what and each.hint for each in problems)
    assert "hold, warn" in problems[1].hint
    assert check_severities({"order.readable": "refuse"}) == ()


def test_status_of_unreadable_resource_told_once() -> None:
    def unreadable(wire: Wire) -> None:
        del wire["resources"]["Specimen/s1"]
        wire["unreadable"] = ["Specimen/s1"]

    (found,) = [each for each in judge(unreadable).findings() if each.rule == "order.readable"]
    assert "this resource: reading it was answered with 403 (forbidden). Please" in found.message


def test_message_is_filled_with_shortened_values() -> None:
    assert format_message("{where}: {a}, {b}", "Task", {"a": "x\ny\x00{where}", "b": "z" * 100}).startswith(
        "Task: x?y?{where}, zz"
    )
    assert format_message("{b}", "Task", {"b": "z" * 100}) == "z" * 80 + "…"
    assert format_message("{where}", "Task\n", {"where": "elsewhere"}) == "Task\n"
    assert Violation("Task") == Violation("Task", (), {}, ())


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
    assert Assessment(order_rejections=BOTH.order_rejections).rejecting_rules() == {"order.x"}


def test_findings_of_the_order_come_before_those_of_lines_and_once() -> None:
    assert BOTH.rejection_reasons("t1") == ("order.x says no", "line.a says no")
    assert BOTH.rejection_reasons("t2") == ("order.x says no", "line.b says no")
    assert BOTH.rejection_reasons("t9") == ("order.x says no",)
    assert [each.rule for each in BOTH.findings()] == ["order.x", "order.w", "line.a", "line.w", "line.b", "order.x"]
    held = Assessment(holds=(finding("order.h", Severity.HOLD),), warnings=BOTH.warnings)
    assert [each.rule for each in held.findings()] == ["order.h", "order.w"]
    assert held.accepted_lines == BOTH.accepted_lines == ()


# --- digests, and what people release ---------------------------------------------------------------------------------


def test_digest_is_of_what_was_found() -> None:
    (found,) = judge(DRAFT).findings()
    about = ["line.status", "procedurerequest/pr1", "status", ["t1"], []]
    assert found.digest == hashlib.sha256(json.dumps(about).encode()).hexdigest()


def test_digest_stays_when_resources_are_numbered_anew() -> None:
    (before,) = judge(AHEAD).findings()
    (after,) = judge(AHEAD, lambda wire: wire["line_tasks"].reverse()).findings()
    assert before.message.startswith("Specimen[0].collection.collectedDateTime (specimen/s1): ")
    assert (before.where.split(".")[0], after.where.split(".")[0]) == ("Specimen[0]", "Specimen[1]")
    assert before.digest == after.digest


def test_digest_tells_places_apart_that_are_no_resource() -> None:
    gone = judge(*(put(lambda wire: wire["resources"], name, to=None) for name in ("Specimen/s1", "Patient/p1")))
    found = [each for each in gone.findings() if each.rule == "order.readable"]
    assert [each.where for each in found] == ["patient/p1", "specimen/s1"]
    assert len({each.digest for each in found}) == 2
    assert judge(catalogue=None).holds[0].message.startswith("catalogue: ")


def test_released_finding_only_warns() -> None:
    (held,) = judge(AHEAD).findings()
    assert (held.rule, held.severity) == ("specimen.collected-ahead", Severity.HOLD)
    (released,) = judge(AHEAD, released={held.digest}).findings()
    assert (released.rule, released.severity) == ("specimen.collected-ahead", Severity.WARN)
    refused = judge(AHEAD, severities={"specimen.collected-ahead": "refuse"}).findings()
    assert [each.severity for each in refused] == [Severity.REFUSE] * len(refused)
    assert judge(AHEAD, severities={"specimen.collected-ahead": "off"}, released={held.digest}).findings() == ()
    assert judge(collected("2026-03-02T14:00:00+00:00"), released={held.digest}).holds
    (rejected,) = judge(DRAFT).findings()
    assert judge(DRAFT, released={rejected.digest}).findings() == (rejected,)


# --- messages in other languages --------------------------------------------------------------------------------------


def test_messages_are_translated() -> None:
    reasons = judge(DRAFT, messages={"line.status": "{where}: статус {status}"}).rejection_reasons("t1")
    assert reasons[0].endswith("статус draft")
    problems = check_messages({"line.status": "{where} {b} {a}", "x": ""})
    assert [problem.where for problem in problems] == ["messages.line.status", "messages.x"]
    assert "a, b" in problems[0].what
    assert all(each.what and each.hint for each in problems)
    german = judge(item("999.999"), messages=load_messages("de", MESSAGES)).lines["t1"].rejections
    assert "Die Untersuchung 999.999 steht nicht im Leistungsverzeichnis" in german[0].message


def test_shipped_languages_are_complete_with_all_placeholders() -> None:
    def names(template: str) -> set[str]:
        return {name for _, name, _, _ in Formatter().parse(template) if name is not None}

    assert "de" in LANGUAGES
    for language in LANGUAGES:
        given = load_messages(language, MESSAGES)
        assert given.keys() == {rule.id for rule in RULES}
        for rule in RULES:
            assert names(given[rule.id]) == names(rule.message), rule.id
            assert given[rule.id] != rule.message, rule.id
    assert load_messages("de", None) == load_messages("de", MESSAGES)
    assert load_messages("en", Path("nowhere")) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"line.item" = "only this"', "order.has-lines: has no message"),
        ('"line.itme" = "x"', "unknown rule"),
        ('"line.item" = "{where} {cod}"', "unknown placeholder: cod"),
        ('"line.item" = "{where"', "is not a message"),
        ('"line.item" = 3', "is not a message"),
        ("= = =", "is not TOML"),
        (None, r"xx\.toml: cannot be read"),
    ],
)
def test_invalid_translation_file_is_rejected_with_reasons(tmp_path: Path, text: Any, said: str) -> None:
    if text:
        (tmp_path / "xx.toml").write_text(text)
    with pytest.raises(SettingsError, match=said) as caught:
        load_messages("xx", tmp_path)
    assert all(each.what and each.hint for each in caught.value.problems)
    assert all(each.where.startswith((str(tmp_path / "xx.toml"), "messages.")) for each in caught.value.problems)
