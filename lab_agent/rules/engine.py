"""The judge: every rule over one order, all problems at once.

Nothing is decided twice: what a rule found is a `Finding`; what follows for an order is read off the `Judgement`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from string import Formatter

from lab_agent.domain.received_order import OrderResource, ReceivedOrder, ResourceRef
from lab_agent.errors import Problem as SettingsProblem
from lab_agent.rules import access_rights, container, line, order, patient, questionnaire, specimen
from lab_agent.rules.catalogue_history import CatalogueHistory
from lab_agent.rules.context import Facts, RuleContext
from lab_agent.rules.rule import Finding, Rule, Severity, format_message

_RULE_MODULES = (order, line, specimen, container, patient, questionnaire, access_rights)
RULES = tuple(each for module in _RULE_MODULES for each in vars(module).values() if isinstance(each, Rule))
"""Every rule, module by module, in the order in which the rules are defined there."""


@dataclass(frozen=True, slots=True)
class LineAssessment:
    """What was found about one line."""

    refusals: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Assessment:
    """What was found about an order.

    `hold` is what may be our own fault: nothing is refused while there is any. `order_refusals` refuse every line. `lines` has an
    entry for each line Task id, with what concerns that line alone. `warnings` concern the whole order.
    """

    holds: tuple[Finding, ...] = ()
    order_refusals: tuple[Finding, ...] = ()
    lines: Mapping[str, LineAssessment] = field(default_factory=dict)
    warnings: tuple[Finding, ...] = ()

    @property
    def accepted_lines(self) -> tuple[str, ...]:
        """Ids of the line Tasks that nothing refuses; empty where the order is held or refused as a whole."""
        if self.holds or self.order_refusals:
            return ()
        return tuple(each for each, found in self.lines.items() if not found.refusals)

    def refusal_reasons(self, task_id: str) -> tuple[str, ...]:
        """The sentences for `output[].valueString` of a line's Task: what refuses the order, then what refuses the line."""
        own = self.lines.get(task_id, LineAssessment()).refusals
        return tuple(dict.fromkeys(finding.message for finding in (*self.order_refusals, *own)))

    def refusing_rules(self, task_ids: Collection[str] | None = None) -> frozenset[str]:
        """Ids of the rules that refuse any of these line Tasks (None: any line): what the safety catch counts."""
        wanted = self.lines.keys() if task_ids is None else self.lines.keys() & set(task_ids)
        own = (finding.rule for task_id in wanted for finding in self.lines[task_id].refusals)
        return frozenset(own) | {finding.rule for finding in self.order_refusals if wanted or not self.lines}

    def findings(self) -> tuple[Finding, ...]:
        """Everything that was found."""
        own = (finding for found in self.lines.values() for finding in (*found.refusals, *found.warnings))
        return (*self.holds, *self.order_refusals, *self.warnings, *own)


def assess(
    received: ReceivedOrder,
    *,
    catalogue: CatalogueHistory | None,
    facts: Facts,
    severities: Mapping[str, str] | None = None,
    messages: Mapping[str, str] | None = None,
) -> Assessment:
    """Judge an order.

    `catalogue` None means that it cannot be read. `severities` and `messages` replace a rule's own by rule id; check them first
    with `check_severities` (what a rule does not allow is left at its default) and `check_messages`.
    """
    case = RuleContext(received, catalogue, facts)
    found = tuple(_run_rules(case, severities or {}, messages or {}))
    return Assessment(
        holds=_select_findings(found, Severity.HOLD),
        order_refusals=_select_findings(found, Severity.REFUSE, None),
        warnings=_select_findings(found, Severity.WARN, None),
        lines={
            each.id: LineAssessment(
                _select_findings(found, Severity.REFUSE, each.id), _select_findings(found, Severity.WARN, each.id)
            )
            for each in received.lines
        },
    )


def check_severities(severities: Mapping[str, str]) -> tuple[SettingsProblem, ...]:
    """Say what is wrong with the `[rules]` settings: unknown rules, and severities that a rule does not allow."""
    known = {rule.id: rule for rule in RULES}
    problems = []
    for rule_id, severity in severities.items():
        where = f"rules.{rule_id}"
        if rule_id not in known:
            problems.append(SettingsProblem(where, "there is no such rule", "`lab-agent rules` lists them"))
        elif severity not in known[rule_id].allowed_severities:
            allowed = ", ".join(sorted(known[rule_id].allowed_severities))
            problems.append(SettingsProblem(where, f"{severity!r} is not possible for it", f"use one of {allowed}"))
    return tuple(problems)


def check_messages(messages: Mapping[str, str]) -> tuple[SettingsProblem, ...]:
    """Say what is wrong with a file of translated messages: unknown rules, and words that the rule does not give."""
    known = {rule.id: rule for rule in RULES}
    problems = []
    for rule_id, template in messages.items():
        where = f"messages.{rule_id}"
        if rule_id not in known:
            problems.append(SettingsProblem(where, "there is no such rule", "`lab-agent rules` lists them"))
        elif unknown := _placeholders(template) - _placeholders(known[rule_id].message):
            shown = ", ".join(sorted(unknown))
            problems.append(SettingsProblem(where, f"names {shown}, which the rule does not give", "use the rule's own names"))
    return tuple(problems)


def _run_rules(context: RuleContext, severities: Mapping[str, str], messages: Mapping[str, str]) -> Iterator[Finding]:
    places = dict(_resource_locations(context.order))
    for rule in RULES:
        severity = _effective_severity(rule, severities)
        if severity is Severity.OFF:
            continue
        for problem in rule.check(context):
            where = _with_reference(problem.where, places)
            message = format_message(messages.get(rule.id, rule.message), where, problem.values)
            for task_id in problem.line_ids or (None,):
                yield Finding(rule.id, severity, problem.where, message, task_id)


def _effective_severity(rule: Rule, severities: Mapping[str, str]) -> Severity:
    wanted = severities.get(rule.id, rule.severity)
    return Severity(wanted) if wanted in rule.allowed_severities else rule.severity


def _select_findings(found: tuple[Finding, ...], severity: Severity, *line_ids: str | None) -> tuple[Finding, ...]:
    wanted = (each for each in found if each.severity is severity and (not line_ids or each.line in line_ids))
    return tuple(dict.fromkeys(wanted))


def _resource_locations(received: ReceivedOrder) -> Iterator[tuple[str, ResourceRef]]:
    parts: tuple[OrderResource, ...] = (*received.requests, *received.specimens, *received.patients, *(received.responses or ()))
    tasks = tuple(each.task for each in received.lines)
    for part in (received.task, *tasks, *parts):
        if part.ref:
            yield part.where, part.ref


def _with_reference(where: str, locations: Mapping[str, ResourceRef]) -> str:
    """The place with the id that the partner knows: our numbering means nothing to a clinic."""
    ref = locations.get(where.split(".", 1)[0])
    return f"{where} ({ref})" if ref else where


def _placeholders(template: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(template) if name is not None}
