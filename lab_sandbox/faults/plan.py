"""One fault: what happens, to which requests, and how often; read from a TOML file or from the admin endpoint.

Decides, request by request, which faults happen: by route, chance, count and script, the same way for the same seed.
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
    "latency", "hang", "reset", "truncate", "lost_reply", "status", "unauthorized", "html",
    "expire_token", "revoke_token",
    "stale_read", "partner_edit",
    "small_pages", "repeated_rows", "incomplete_search", "missing_entry", "foreign_next",
    "lower_case_references", "canonical_references", "absolute_references", "foreign_references",
    "unknown_fields", "trailing_zeros",
]  # fmt: skip


class FaultRule(BaseModel):
    """One fault of a plan; `docs/sandbox.md` says what each kind does."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: FaultKind
    route: str = "*"
    """`[METHOD ]<path>` with `*` and `?`, in any case; the path as `/fhir/Task/<id>`, with the query if need be."""
    caller: str | None = None
    """Only requests of this counterparty: its name, its guid, or its kind (partner, laboratory)."""
    probability: float = Field(default=1.0, ge=0, le=1)
    skip: int = Field(default=0, ge=0)
    """Requests on the route that are let through first."""
    count: int | None = Field(default=None, ge=0)
    """How often it happens at most; None: no limit."""
    script: str = Field(default="", pattern=r"^[.x]*$")
    """`x` happens, `.` does not, one letter for each request on the route; after its end nothing happens any more."""
    seconds: float = Field(default=1.0, ge=0)
    """latency: how long; hang: how long at most."""
    status: int = Field(default=503, ge=400, le=599)
    retry_after: int | None = Field(default=None, ge=0)
    """status: seconds for the Retry-After header."""
    retry_after_form: Literal["seconds", "date"] = "seconds"
    after_work: bool = False
    """status, html: the request is carried out before the answer is replaced."""
    size: int = Field(default=2, ge=1)
    """small_pages: rows on a page."""
    drop: int = Field(default=1, ge=1)
    """incomplete_search: rows left out at the end."""
    change: dict[str, Any] = Field(default_factory=dict)
    """partner_edit: fields that the edit sets; without any, the resource only gets a new version."""
    origin: str = "http://elsewhere.example"
    """foreign_next, foreign_references: where they lead."""

    def matches(self, method: str, path: str, query: str, caller: frozenset[str] = frozenset()) -> bool:
        """Whether a request is on this fault's route, and by its caller (known by several names, or by none)."""
        if self.caller is not None and self.caller not in caller:
            return False
        wanted, _, pattern = self.route.rpartition(" ")
        if wanted and wanted.upper() != method:
            return False
        here = path.lower()
        return any(fnmatchcase(one, pattern.lower()) for one in (here, f"{here}?{query.lower()}"))


class FaultPlan(BaseModel):
    """All faults of a run. The seed makes chances come out the same way each time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = 0
    faults: tuple[FaultRule, ...] = ()


class FaultPlanError(Exception):
    """The plan cannot be used; the text names each key and what is wrong with it."""


def parse_plan(raw: Any, source: str) -> FaultPlan:
    """Plain data -> plan, or a `FaultPlanError`."""
    try:
        return FaultPlan.model_validate(raw)
    except ValidationError as exc:
        lines = [f"{'.'.join(map(str, one['loc'])) or 'plan'}: {one['msg']}" for one in exc.errors()]
        raise FaultPlanError(f"{source}: " + "; ".join(lines)) from exc


def load_plan(path: Path) -> FaultPlan:
    """A TOML file -> plan, or a `FaultPlanError`."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise FaultPlanError(f"{path}: cannot be read ({exc.strerror})") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise FaultPlanError(f"{path}: not TOML ({exc})") from exc
    return parse_plan(raw, str(path))


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
