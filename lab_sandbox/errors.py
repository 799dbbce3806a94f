"""Errors of the service: a status of 400 or above and an OperationOutcome that names the element and the rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab_sandbox.rule_ids import Rule, SwitchableRule


@dataclass(frozen=True)
class Problem:
    """One violation of a rule: where it is and what is expected there."""

    element: str
    rule: str
    text: str
    code: str = "invalid"

    def diagnostics(self) -> str:
        """The text for OperationOutcome.issue.diagnostics: `element: text (rule id)`."""
        return f"{self.element}: {self.text} (rule {self.rule})"


@dataclass(frozen=True)
class Issue:
    """One entry of OperationOutcome.issue ("Errors")."""

    code: str
    diagnostics: str
    severity: str = "error"


class HttpError(Exception):
    """The request is rejected with this status (400 or above) and these issues."""

    def __init__(self, status: int, issues: Sequence[Issue], headers: Mapping[str, str] | None = None) -> None:
        super().__init__(issues[0].diagnostics)
        self.status = status
        self.issues = tuple(issues)
        self.headers = dict(headers or {})

    @classmethod
    def of(cls, status: int, code: str, diagnostics: str, headers: Mapping[str, str] | None = None) -> HttpError:
        """An error with one issue."""
        return cls(status, [Issue(code, diagnostics)], headers)

    @classmethod
    def from_problems(cls, problems: Sequence[Problem], status: int = 422) -> HttpError:
        """An error that lists every problem, so that the caller can correct them all at once."""
        return cls(status, [Issue(problem.code, problem.diagnostics()) for problem in problems])


@dataclass
class Problems:
    """Collects violations; those of disabled rules are dropped."""

    disabled_rules: frozenset[SwitchableRule] = frozenset()
    found: list[Problem] = field(default_factory=list)

    def add(self, element: str, rule: Rule, text: str, code: str = "invalid") -> None:
        """Adds one problem unless its rule is disabled."""
        if rule not in self.disabled_rules:
            self.found.append(Problem(element, rule, text, code))

    def raise_if_any(self) -> None:
        """Raises one `HttpError` (422) with all problems, if there are any."""
        if self.found:
            raise HttpError.from_problems(self.found)


def operation_outcome(issues: Sequence[Issue]) -> dict[str, Any]:
    """The body of every failed request ("Errors")."""
    entries = [{"severity": one.severity, "code": one.code, "diagnostics": one.diagnostics} for one in issues]
    return {"resourceType": "OperationOutcome", "issue": entries}
