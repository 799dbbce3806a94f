"""One fault: what happens, to which requests, and how often; read from a TOML file or from the admin endpoint."""

import tomllib
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
