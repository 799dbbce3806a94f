"""What each rule is: its id, what it does, what settings and operators may do about it, and where it comes from.

An id and a severity are in settings and in stored findings: they change only with a note in the changelog.
"""

from __future__ import annotations

import pytest

from lab_agent.rules import (
    access_rights,
    clocks,
    collection_times,
    container,
    line,
    order,
    patient,
    questionnaire,
    specimen,
)
from lab_agent.rules.engine import RELEASABLE_RULES, RULES, RULES_RELEASED_TOGETHER
from lab_agent.rules.rule import Rule, Severity, Violation, format_message

MODULES = (order, clocks, line, specimen, collection_times, container, patient, questionnaire, access_rights)
DEFINITIONS = {
    "order.has-lines": ("hold may_refuse", "Task: laboratory-side counts per order"),
    "order.task-code": ("warn", "Task: order-level Task"),
    "order.line-based-on": ("refuse", "Task: ProcedureRequest-level Task"),
    "order.one-task-per-request": ("refuse", "Task: a bundle has one Task per ProcedureRequest"),
    "order.line-part-of": ("warn", "Task: ProcedureRequest-level Task"),
    "order.reference-form": ("refuse", "Resources and their fields: ProcedureRequest, Task"),
    "order.address": ("hold may_refuse", "Resources and their fields: ProcedureRequest, Task"),
    "order.readable": ("hold may_refuse", "Authentication: resource rights"),
    "order.has-specimens": ("refuse", "Task: laboratory-side counts per order"),
    "order.requisition": ("refuse", "ProcedureRequest: requisition"),
    "order.one-requisition": ("refuse", "Create order: rule 1"),
    "order.contract": ("refuse", "ProcedureRequest: supportingInfo"),
    "order.contract-system-known": ("hold may_refuse", "ProcedureRequest: supportingInfo"),
    "order.one-contract": ("refuse", "Create order: rule 1"),
    "order.one-contract-link": ("refuse", "Create order: rule 1"),
    "order.contract-system": ("warn", "ProcedureRequest: supportingInfo"),
    "order.contract-known": ("hold", "ProcedureRequest: supportingInfo"),
    "order.catalogue": ("hold", "What the service does: the laboratory provides the nomenclature"),
    "order.one-patient": ("refuse", "Task: laboratory-side counts per order"),
    "order.shape": ("warn", "Resources and their fields"),
    "order.clocks-differ": ("hold may_release", "Specimen: collection"),
    "line.status": ("refuse", "ProcedureRequest: status"),
    "line.subject": ("refuse", "ProcedureRequest: subject"),
    "line.code": ("refuse", "ProcedureRequest: code"),
    "line.code-system": ("refuse", "ProcedureRequest: code"),
    "line.code-system-spelling": ("warn", "ProcedureRequest: code"),
    "line.item": ("refuse", "ProcedureRequest: code"),
    "line.item-withdrawn": ("warn", "Limits: the nomenclature may be cached for one day"),
    "line.stopped": ("refuse", "Turnaround item: rules"),
    "line.stopped-since": ("warn reads_clock", "Turnaround item: rules"),
    "line.delayed": ("warn", "Turnaround item: rules"),
    "line.repeat": ("refuse", "Nomenclature item: allow_multiple_items"),
    "line.time": ("warn", "ProcedureRequest: occurrenceDateTime"),
    "line.time-future": ("warn reads_clock", "ProcedureRequest: occurrenceDateTime"),
    "line.old-order": ("refuse", "Create order: rule 4"),
    "line.old-order-form": ("warn", "Create order: rule 4"),
    "line.old-order-system": ("warn", "Create order: rule 4"),
    "line.old-order-unasked": ("warn", "ProcedureRequest: basedOn"),
    "specimen.present": ("refuse", "ProcedureRequest: specimen"),
    "specimen.patient": ("refuse", "Specimen: subject"),
    "specimen.type": ("refuse", "Specimen: type"),
    "specimen.type-system": ("warn", "Specimen: type"),
    "specimen.type-offered": ("refuse", "Specimen: type"),
    "specimen.one-type": ("refuse", "Create order: rule 2"),
    "specimen.required": ("refuse", "Nomenclature item: required_specimen"),
    "specimen.site": ("warn", "Specimen: extension"),
    "specimen.method-system": ("warn", "Specimen: collection"),
    "specimen.method": ("warn", "Specimen: collection"),
    "specimen.extension": ("warn", "Specimen: extension"),
    "specimen.collected": ("refuse", "Specimen: collection"),
    "specimen.collected-period": ("warn", "Specimen: collection"),
    "specimen.collected-future": ("refuse reads_clock", "Specimen: collection"),
    "specimen.collected-ahead": ("hold may_refuse may_release reads_clock", "Specimen: collection"),
    "specimen.tolerance-time": ("refuse", "Specimen: collection (glucose tolerance tests)"),
    "specimen.tolerance-points": ("refuse", "Specimen: collection (glucose tolerance tests)"),
    "specimen.tolerance-sequence": ("refuse", "Specimen: collection (glucose tolerance tests)"),
    "tube.label": ("refuse", "Specimen: container"),
    "tube.label-form": ("refuse", "Specimen: container"),
    "tube.label-system": ("warn", "Specimen: container"),
    "tube.label-several": ("hold may_refuse may_release look_at_each", "Specimen: container"),
    "tube.label-shared": ("warn", "Specimen: container"),
    "tube.label-times": ("hold may_refuse may_release", "Specimen: container"),
    "tube.label-contradicts": ("refuse", "Specimen: container"),
    "tube.label-in-use": ("hold may_refuse may_release look_at_each", "Specimen: container"),
    "tube.label-reused": ("warn", "Specimen: container"),
    "tube.second-label": ("refuse", "Create order: rule 3"),
    "tube.second-label-system": ("hold may_refuse may_release look_at_each", "Create order: rule 3"),
    "tube.second-label-unset": ("hold may_release look_at_each", "Create order: rule 3"),
    "tube.type": ("refuse", "Specimen: container"),
    "tube.type-missing": ("warn", "Specimen: container"),
    "tube.type-system": ("warn", "Specimen: container"),
    "tube.type-fits": ("refuse", "Specimen: container"),
    "tube.quantity": ("refuse", "Specimen: container"),
    "tube.quantity-missing": ("warn", "Specimen: container"),
    "tube.quantity-enough": ("warn", "Specimen: container"),
    "patient.gender": ("refuse", "Patient: on the laboratory side"),
    "patient.gender-code": ("refuse", "Patient: on the laboratory side"),
    "patient.birth-date": ("refuse", "Patient: on the laboratory side"),
    "patient.birth-date-whole": ("warn", "Patient: on the laboratory side"),
    "patient.birth-possible": ("refuse reads_clock", "Patient: on the laboratory side"),
    "patient.anonymous": ("warn reads_clock", "Patient: anonymous order"),
    "patient.global": ("warn", "What the service does: rule 5, a global patient identifier"),
    "questionnaire.unknown": ("warn", "QuestionnaireResponse"),
    "questionnaire.completed": ("warn", "QuestionnaireResponse"),
    "questionnaire.source": ("refuse", "QuestionnaireResponse"),
    "questionnaire.subject": ("warn", "QuestionnaireResponse"),
    "questionnaire.visible": ("hold may_refuse may_release look_at_each", "Authentication: resource rights"),
    "questionnaire.required": ("refuse", "Questionnaire: required"),
    "questionnaire.choice": ("refuse", "Questionnaire: option"),
    "questionnaire.once": ("warn", "Questionnaire: repeats"),
    "rights.update": ("warn", "Authentication: resource rights"),
    "rights.read": ("warn", "Authentication: resource rights"),
}
"""By id: the severity and what is set of the rule, and the section of the interface document."""
FLAGS = ("may_refuse", "may_release", "look_at_each", "reads_clock")


def test_rules_are_those_of_their_modules_in_order() -> None:
    assert [rule.id for rule in RULES] == list(DEFINITIONS)
    assert tuple(each for module in MODULES for each in vars(module).values() if isinstance(each, Rule)) == RULES


@pytest.mark.parametrize("rule", RULES, ids=lambda each: each.id)
def test_rule_is_as_it_was_published(rule: Rule) -> None:
    is_set = " ".join([rule.severity.value, *(flag for flag in FLAGS if getattr(rule, flag) is True)])
    assert (is_set, rule.section) == DEFINITIONS[rule.id]
    assert all(getattr(rule, flag) in {True, False} for flag in FLAGS)
    assert "{where}" in rule.message


@pytest.mark.parametrize("rule", RULES, ids=lambda each: each.id)
def test_hold_is_not_made_a_rejection_by_settings(rule: Rule) -> None:
    """Law 10, but for the rules that say so."""
    only_held = rule.severity is Severity.HOLD and not rule.may_refuse
    assert rule.allowed_severities == ({Severity.HOLD, Severity.WARN} if only_held else set(Severity))


def test_releasable_rules_are_those_that_say_so() -> None:
    assert {each.id for each in RULES if each.may_release} == RELEASABLE_RULES
    assert {each.id for each in RULES if each.may_release and not each.look_at_each} == RULES_RELEASED_TOGETHER


def test_message_is_filled_with_shortened_values() -> None:
    assert format_message("{where}: {a}, {b}", "Task", {"a": "x\ny", "b": "z" * 100}) == f"Task: x?y, {'z' * 80}…"
    assert format_message("{where}", "Task\n", {"where": "elsewhere"}) == "Task\n"


def test_violation_is_about_the_whole_order_unless_it_names_lines() -> None:
    assert Violation("Task") == Violation("Task", (), {}, ())
