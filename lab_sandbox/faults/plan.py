"""Fault plans: what happens, to which requests, and how often; read from a TOML file or the admin endpoint.

The scheduler selects the faults of each request by route, probability, count and script, repeatably for the same seed.
"""

import random
import tomllib
from collections import deque
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

FaultKind = Literal[
    "latency", "hang", "reset", "truncate", "lost_reply", "status", "unauthorized", "html", "maintenance_page",
    "expire_token", "revoke_token", "bad_token",
    "stale_read", "partner_edit",
    "small_pages", "repeated_rows", "incomplete_search", "missing_entry", "foreign_next", "own_next_links",
    "ignore_search_parameters", "poison_task",
    "lower_case_references", "canonical_references", "absolute_references", "foreign_references",
    "unknown_fields", "trailing_zeros",
]  # fmt: skip


Poison = Literal["lone_surrogate", "nan", "long_number", "deep_nesting", "control_character"]
"""What JSON readers fail at."""


class FaultRule(BaseModel):
    """One fault of a plan; docs/sandbox.md describes each kind."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: FaultKind
    route: str = "*"
    """`[METHOD ]<path>` with `*` and `?`, in any case; the path as `/fhir/Task/<id>`, optionally with the query."""
    caller: str | None = None
    """Only requests of this counterparty: its name, its guid, or its kind (partner, laboratory)."""
    probability: float = Field(default=1.0, ge=0, le=1)
    skip: int = Field(default=0, ge=0)
    """Number of matching requests before the first fault."""
    count: int | None = Field(default=None, ge=0)
    """Maximum number of faults; None: no limit."""
    script: str = Field(default="", pattern=r"^[.x]*$")
    """One character for each matching request: `x` fault, `.` none; no fault after its end."""
    seconds: float = Field(default=1.0, ge=0)
    """latency: the delay; hang: the maximum time."""
    status: int = Field(default=503, ge=400, le=599)
    retry_after: int | None = Field(default=None, ge=0)
    """status: seconds for the Retry-After header."""
    retry_after_form: Literal["seconds", "date"] = "seconds"
    after_work: bool = False
    """status, html, maintenance_page: process the request before replacing the response."""
    size: int = Field(default=2, ge=1)
    """small_pages: results on a page."""
    drop: int = Field(default=1, ge=1)
    """incomplete_search: number of results left out at the end."""
    change: dict[str, Any] = Field(default_factory=dict)
    """partner_edit: fields that the edit sets; if empty, the resource only gets a new version."""
    origin: str = "http://elsewhere.example"
    """foreign_next, own_next_links, foreign_references, maintenance_page: the foreign origin."""
    parameters: tuple[str, ...] = ()
    """ignore_search_parameters: which ones; if empty, all."""
    token: str = "two\r\nlines"  # noqa: S105 - nobody's
    """bad_token: what is given as the access token."""
    poison: Poison = "lone_surrogate"
    """poison_task: what the resource contains."""
    ids: tuple[str, ...] = ()
    """poison_task: ids of the resources; if empty, the first of each page."""

    def ignores(self, parameter: str) -> bool:
        """Whether a search parameter is ignored."""
        return not self.parameters or parameter in self.parameters

    def matches(self, method: str, path: str, query: str, caller: frozenset[str] = frozenset()) -> bool:
        """Whether a request matches this fault's route and caller; `caller` has all names of the caller."""
        if self.caller is not None and self.caller not in caller:
            return False
        route_method, _, pattern = self.route.rpartition(" ")
        if route_method and route_method.upper() != method:
            return False
        path = path.lower()
        return any(fnmatchcase(one, pattern.lower()) for one in (path, f"{path}?{query.lower()}"))


class FaultPlan(BaseModel):
    """All faults of a run. The seed makes random faults repeatable."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = 0
    faults: tuple[FaultRule, ...] = ()


class FaultPlanError(Exception):
    """An invalid plan; the text names each key and what is wrong with it."""


def parse_plan(raw: Any, source: str) -> FaultPlan:
    """A plan from plain data; `FaultPlanError` lists everything that is wrong."""
    try:
        return FaultPlan.model_validate(raw)
    except ValidationError as exc:
        lines = [f"{'.'.join(map(str, one['loc'])) or 'plan'}: {one['msg']}" for one in exc.errors()]
        raise FaultPlanError(f"{source}: " + "; ".join(lines)) from exc


def load_plan(path: Path) -> FaultPlan:
    """A plan from a TOML file; `FaultPlanError` lists everything that is wrong."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise FaultPlanError(f"{path} cannot be read: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise FaultPlanError(f"{path} is not valid TOML: {exc}") from exc
    return parse_plan(raw, str(path))


_MAX_FIRED = 1000


@dataclass
class _FaultProgress:
    """One fault, and how often it was considered and fired."""

    rule: FaultRule
    rng: random.Random
    seen: int = 0
    fired: int = 0

    def advance(self) -> bool:
        """Counts one matching request; whether the fault fires for it."""
        number, self.seen = self.seen, self.seen + 1
        is_due = self._is_due(number)
        self.fired += is_due
        return is_due

    def _is_due(self, number: int) -> bool:
        rule = self.rule
        if number < rule.skip or (rule.count is not None and self.fired >= rule.count):
            return False
        if rule.script:
            position = number - rule.skip
            return position < len(rule.script) and rule.script[position] == "x"
        return self.rng.random() < rule.probability


@dataclass
class FaultScheduler:
    """The active plan and its progress."""

    plan: FaultPlan = field(default_factory=FaultPlan)
    fired: deque[tuple[str, str, str]] = field(default_factory=lambda: deque(maxlen=_MAX_FIRED))
    """The latest faults: (kind, method, path)."""
    _progress: list[_FaultProgress] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.activate(self.plan)

    def activate(self, plan: FaultPlan) -> None:
        """Activates a plan, from its beginning."""
        self.plan = plan
        self.fired.clear()
        # A random generator for each fault: adding a fault to a plan does not change when the others fire.
        self._progress = [
            _FaultProgress(rule, random.Random(f"{plan.seed}/{number}"))  # noqa: S311 - repeatable by design
            for number, rule in enumerate(plan.faults)
        ]

    def select_faults(self, method: str, path: str, query: str, caller: frozenset[str] = frozenset()) -> list[FaultRule]:
        """The faults for this request, in the plan's order."""
        found = [
            progress.rule
            for progress in self._progress
            if progress.rule.matches(method, path, query, caller) and progress.advance()
        ]
        self.fired.extend((rule.kind, method, path) for rule in found)
        return found

    def needs_caller(self) -> bool:
        """Whether a fault of the plan depends on the caller."""
        return any(progress.rule.caller is not None for progress in self._progress)

    def state(self) -> dict[str, Any]:
        """For the admin endpoint: the plan, and how many requests each fault has seen and hit."""
        faults = [
            {**progress.rule.model_dump(mode="json", exclude_defaults=True), "seen": progress.seen, "fired": progress.fired}
            for progress in self._progress
        ]
        return {"seed": self.plan.seed, "faults": faults}
