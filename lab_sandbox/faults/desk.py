"""Decides, request by request, which faults happen: by route, chance, count and script, the same way for the same seed."""

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from lab_sandbox.faults.rule import FaultPlan, FaultRule

_MAX_FIRED = 1000


@dataclass
class _FaultProgress:
    """How far one fault has come."""

    rule: FaultRule
    rng: random.Random
    seen: int = 0
    fired: int = 0

    def advance(self) -> bool:
        """Counts one request on the route; whether the fault happens to it."""
        number, self.seen = self.seen, self.seen + 1
        happens = self._is_due(number)
        self.fired += happens
        return happens

    def _is_due(self, number: int) -> bool:
        rule = self.rule
        if number < rule.skip or (rule.count is not None and self.fired >= rule.count):
            return False
        if rule.script:
            place = number - rule.skip
            return place < len(rule.script) and rule.script[place] == "x"
        return self.rng.random() < rule.probability


@dataclass
class FaultScheduler:
    """The plan in force and its state."""

    plan: FaultPlan = field(default_factory=FaultPlan)
    fired: deque[tuple[str, str, str]] = field(default_factory=lambda: deque(maxlen=_MAX_FIRED))
    """The latest faults that happened: (kind, method, path)."""
    _progress: list[_FaultProgress] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.activate(self.plan)

    def activate(self, plan: FaultPlan) -> None:
        """Puts a plan in force, from its beginning."""
        self.plan = plan
        self.fired.clear()
        # A generator of its own for each fault: adding one to a plan does not change the luck of the others.
        self._progress = [
            _FaultProgress(rule, random.Random(f"{plan.seed}/{number}"))  # noqa: S311 - repeatable on purpose
            for number, rule in enumerate(plan.faults)
        ]

    def select_faults(self, method: str, path: str, query: str, caller: frozenset[str] = frozenset()) -> list[FaultRule]:
        """The faults that happen to this request, in the plan's order."""
        found = [
            course.rule for course in self._progress if course.rule.matches(method, path, query, caller) and course.advance()
        ]
        self.fired.extend((rule.kind, method, path) for rule in found)
        return found

    def needs_caller(self) -> bool:
        """Whether any fault of the plan is for one caller only."""
        return any(course.rule.caller is not None for course in self._progress)

    def state(self) -> dict[str, Any]:
        """For the admin endpoint: the plan, and how often each fault was met and happened."""
        listed = [
            {**course.rule.model_dump(mode="json", exclude_defaults=True), "seen": course.seen, "fired": course.fired}
            for course in self._progress
        ]
        return {"seed": self.plan.seed, "faults": listed}
