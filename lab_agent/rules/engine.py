"""Every rule over one order: all problems at once, so that a clinic corrects an order once.

A violation becomes a `Finding`; what follows for the order and its lines is read off the `Assessment`, and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from string import Formatter

from lab_agent.fhir.received_order import OrderResource, ReceivedOrder, ResourceRef
from lab_agent.rules import access_rights, clocks, collection_times, container, line, order, patient, questionnaire, specimen
from lab_agent.rules.catalogue_history import CatalogueHistory
from lab_agent.rules.context import Facts, RuleContext
from lab_agent.rules.rule import Finding, Rule, Severity, Violation, format_message
from lab_agent.shared.errors import Problem as SettingsProblem

_RULE_MODULES = (order, clocks, line, specimen, collection_times, container, patient, questionnaire, access_rights)
RULES = tuple(each for module in _RULE_MODULES for each in vars(module).values() if isinstance(each, Rule))
"""Every rule, module by module, in the order in which the rules are defined there."""
_RULES_BY_ID = {each.id: each for each in RULES}
RELEASABLE_RULES = frozenset(each.id for each in RULES if each.may_release)
"""Ids of the rules whose hold an operator may override for one order."""
RULES_RELEASED_TOGETHER = frozenset(each.id for each in RULES if each.may_release and not each.look_at_each)
"""Ids of those whose hold an operator may override for all orders at once."""


@dataclass(frozen=True, slots=True)
class LineAssessment:
    """What was found about one line."""

    rejections: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Assessment:
    """What was found about an order.

    `holds` are what may be our own fault: nothing is rejected while there is any. `order_rejections` reject every line. `lines`
    has an entry for each line Task id, with what concerns that line alone. `warnings` concern the whole order.
    """

    holds: tuple[Finding, ...] = ()
    order_rejections: tuple[Finding, ...] = ()
    lines: Mapping[str, LineAssessment] = field(default_factory=dict)
    warnings: tuple[Finding, ...] = ()

    @property
    def accepted_lines(self) -> tuple[str, ...]:
        """Ids of the line Tasks that nothing rejects; empty where the order is held or rejected as a whole."""
        if self.holds or self.order_rejections:
            return ()
        return tuple(each for each, found in self.lines.items() if not found.rejections)

    def rejection_reasons(self, task_id: str) -> tuple[str, ...]:
        """The sentences for `output[].valueString` of a line's Task: what rejects the order, then what rejects the line."""
        own = self.lines.get(task_id, LineAssessment()).rejections
        return tuple(dict.fromkeys(finding.message for finding in (*self.order_rejections, *own)))

    def rejecting_rules(self, task_ids: Collection[str] | None = None) -> frozenset[str]:
        """Ids of the rules that reject any of these line Tasks (None: any line): what the rejection breaker counts."""
        wanted = self.lines.keys() if task_ids is None else self.lines.keys() & set(task_ids)
        own = (finding.rule for task_id in wanted for finding in self.lines[task_id].rejections)
        return frozenset(own) | {finding.rule for finding in self.order_rejections if wanted or not self.lines}

    def findings(self) -> tuple[Finding, ...]:
        """Everything that was found."""
        own = (finding for found in self.lines.values() for finding in (*found.rejections, *found.warnings))
        return (*self.holds, *self.order_rejections, *self.warnings, *own)


def assess(
    received: ReceivedOrder,
    *,
    catalogue: CatalogueHistory | None,
    facts: Facts,
    severities: Mapping[str, str] | None = None,
    messages: Mapping[str, str] | None = None,
    released: Collection[str] = (),
) -> Assessment:
    """Run every rule over an order.

    `catalogue` None means that it cannot be read. `severities` and `messages` replace a rule's own by rule id; check them first
    with `check_severities` (what a rule does not allow is left at its default) and `check_messages`. `released` are digests of
    findings that a person has looked at: these only warn.
    """
    return assess_in_context(RuleContext(received, catalogue, facts), severities=severities, messages=messages, released=released)


def assess_in_context(
    context: RuleContext,
    *,
    severities: Mapping[str, str] | None = None,
    messages: Mapping[str, str] | None = None,
    released: Collection[str] = (),
) -> Assessment:
    """Run every rule over the order of a context, which is of use after that, too. Otherwise as `assess`."""
    found = tuple(dict.fromkeys(_run_rules(context, severities or {}, messages or {}, released)))

    def select(severity: Severity, line: str | None) -> tuple[Finding, ...]:
        return tuple(each for each in found if each.severity is severity and each.line == line)

    return Assessment(
        holds=tuple(each for each in found if each.severity is Severity.HOLD),
        order_rejections=select(Severity.REFUSE, None),
        warnings=select(Severity.WARN, None),
        lines={
            each.id: LineAssessment(select(Severity.REFUSE, each.id), select(Severity.WARN, each.id))
            for each in context.order.lines
        },
    )


def check_severities(severities: Mapping[str, str]) -> tuple[SettingsProblem, ...]:
    """Give what is wrong with `[rules.severities]`: unknown rules, and severities that a rule does not allow."""
    problems = []
    for rule_id, severity in severities.items():
        where = f"rules.{rule_id}"
        if rule_id not in _RULES_BY_ID:
            problems.append(SettingsProblem(where, "unknown rule", "use a rule that `lab-agent rules` lists"))
        elif severity not in _RULES_BY_ID[rule_id].allowed_severities:
            allowed = ", ".join(sorted(_RULES_BY_ID[rule_id].allowed_severities))
            problems.append(SettingsProblem(where, f"{severity!r} is not allowed for this rule", f"use one of {allowed}"))
    return tuple(problems)


def check_messages(messages: Mapping[str, str]) -> tuple[SettingsProblem, ...]:
    """Give what is wrong with translated messages: unknown rules, and placeholders that the rule does not fill."""
    problems = []
    for rule_id, template in messages.items():
        where = f"messages.{rule_id}"
        if rule_id not in _RULES_BY_ID:
            problems.append(SettingsProblem(where, "unknown rule", "use a rule that `lab-agent rules` lists"))
        elif unknown := _placeholders(template) - _placeholders(_RULES_BY_ID[rule_id].message):
            shown = ", ".join(sorted(unknown))
            problems.append(
                SettingsProblem(where, f"unknown placeholder: {shown}", "use the placeholders of the rule's own message")
            )
    return tuple(problems)


def _run_rules(
    context: RuleContext, severities: Mapping[str, str], messages: Mapping[str, str], released: Collection[str]
) -> Iterator[Finding]:
    refs = dict(_resource_refs(context.order))
    for rule in RULES:
        severity = _effective_severity(rule, severities)
        for found in rule.check(context) if severity is not Severity.OFF else ():
            told_by, violation = _defer_times(rule, found, severity, context)
            told_severity = _effective_severity(told_by, severities)
            where = _with_reference(violation.where, refs)
            message = format_message(messages.get(told_by.id, told_by.message), where, violation.values)
            digest = _digest(told_by, violation, refs)
            if digest in released and told_by.may_release:
                told_severity = Severity.WARN
            for task_id in violation.line_ids or (None,):
                yield Finding(told_by.id, told_severity, violation.where, message, task_id, digest)


def _defer_times(rule: Rule, found: Violation, severity: Severity, context: RuleContext) -> tuple[Rule, Violation]:
    """Give the rule that tells what was found. While the clocks differ, no rule that reads ours rejects or holds by itself."""
    difference = context.facts.clock_difference
    if not (difference and rule.reads_clock and severity in {Severity.REFUSE, Severity.HOLD}):
        return rule, found
    return clocks.clocks_differ, clocks.defer(found, rule, difference)


def _digest(rule: Rule, violation: Violation, refs: Mapping[str, ResourceRef]) -> str:
    """Identify what was found, by what it is about; our numbering of the resources says nothing of that."""
    resource, _, part = violation.where.partition(".")
    about = [rule.id, str(refs.get(resource, resource)), part, sorted(violation.line_ids), violation.evidence]
    return sha256(json.dumps(about).encode()).hexdigest()


def _effective_severity(rule: Rule, severities: Mapping[str, str]) -> Severity:
    wanted = severities.get(rule.id)
    return Severity(wanted) if wanted is not None and wanted in rule.allowed_severities else rule.severity


def _resource_refs(received: ReceivedOrder) -> Iterator[tuple[str, ResourceRef]]:
    parts: tuple[OrderResource, ...] = (*received.requests, *received.specimens, *received.patients, *(received.responses or ()))
    tasks = tuple(each.task for each in received.lines)
    for part in (received.task, *tasks, *parts):
        if part.ref:
            yield part.where, part.ref


def _with_reference(where: str, refs: Mapping[str, ResourceRef]) -> str:
    """The place with the resource's id, which the partner knows: our numbering means nothing to a clinic."""
    ref = refs.get(where.partition(".")[0])
    return f"{where} ({ref})" if ref else where


def _placeholders(template: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(template) if name is not None}
