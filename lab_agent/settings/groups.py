"""The smaller groups of settings, and what every group has in common: frozen, no unknown keys, a description for each key.

The string under a field is its description: it is the hint when the key is missing or wrong, and docs/configuration.md shows it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    FilePath,
    SecretStr,
    field_validator,
    model_validator,
)

from lab_agent.settings.introspection import BASIC
from lab_agent.shared.errors import ForeignOrigin
from lab_agent.shared.url_origin import origin_of

T = TypeVar("T")
Basic = Annotated[T, BASIC]
"""A key that most installations set."""
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""A duration in seconds."""
Port = Annotated[int, Field(ge=0, le=65535)]
"""A TCP port; 0 takes a free one."""
Days = Annotated[int, Field(ge=1, le=36500)]
SeveritySetting = Literal["refuse", "hold", "warn", "off"]


_PLACEHOLDER = re.compile(r"<[^<>]*>")
_GUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")


def _reject_placeholder(text: str) -> str:
    if _PLACEHOLDER.search(text):
        raise ValueError("is still a placeholder; write your own value in its place, without angle brackets")
    return text


def _require_absolute_url(value: str) -> str:
    try:
        origin_of(_reject_placeholder(value))
    except ForeignOrigin as exc:
        raise ValueError("is not an http or https address; write it as https://host/path, without a user name") from exc
    return value


def _require_guid(value: str) -> str:
    if not _GUID.fullmatch(_reject_placeholder(value)):
        raise ValueError("is no guid; it has letters, digits and hyphens alone, such as 8b9e7a52-0f64-4c1f-a6a5-52d3f2b7a002")
    return value


def _require_uri(value: str) -> str:
    if not _URI.fullmatch(_reject_placeholder(value)):
        raise ValueError("is no address of a code system; write it whole, such as https://host/path or urn:oid:1.2.3")
    return value


def _require_contract_code(value: str) -> str:
    if not value.strip() or any(mark in _reject_placeholder(value) for mark in ("://", "<", ">")):
        raise ValueError("is no contract; the name of this table is the code of the contract, such as C-100")
    return value


NotPlaceholder = AfterValidator(_reject_placeholder)
"""Refuses what a template has in angle brackets."""
HttpAddress = Annotated[str, AfterValidator(_require_absolute_url)]
"""An absolute http or https address, kept as it is."""
AbsoluteUrl = Annotated[str, AfterValidator(lambda value: _require_absolute_url(value).rstrip("/"))]
"""An absolute http or https address, kept without a slash at its end."""
BaseUrl = Annotated[str, AfterValidator(lambda value: _require_absolute_url(value).rstrip("/") + "/")]
"""An absolute http or https address, kept with one slash at its end."""
CodeSystem = Annotated[str, AfterValidator(_require_uri)]
"""A URI that names a code system."""
Guid = Annotated[str, AfterValidator(_require_guid)]
"""The guid of a counterparty."""
ContractCode = Annotated[str, AfterValidator(_require_contract_code)]
"""The code of a contract."""


def _check_regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as exc:
        raise ValueError(f"is not a regular expression: {exc}") from exc
    return text


class SettingsGroup(BaseModel):
    """A table of the settings file. Invalid values are never repeated in an error: they may be secrets."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True, validate_default=True
    )


class LisRouteSettings(SettingsGroup):
    """Which lines of an order go to which laboratory system. The first route that a line fits counts.

    A line fits if it is of the `contract`, where that is set, and of one of the `groups` or `items`, where any is named. One that
    fits none goes to its contract's adapter, else to `lis.default`.
    """

    contract: str | None = None
    """Code of the contract. If not set, all contracts."""
    groups: tuple[str, ...] = ()
    """Groups of items, as the catalogue has them."""
    items: tuple[str, ...] = ()
    """Items, by their nomenclature codes."""
    adapter: str
    """LIS adapter that takes these lines, by its name in [lis]."""

    @field_validator("contract", "groups", "items")
    @classmethod
    def _check_names(cls, given: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        names = (given,) if isinstance(given, str) else given or ()
        if blank := [each for each in names if not each or each != each.strip()]:
            raise ValueError(f"{blank[0]!r} is empty or has spaces at its ends; write the name alone, as the catalogue has it")
        return given

    @model_validator(mode="after")
    def _check_condition(self) -> Self:
        if self.contract is None and not self.groups and not self.items:
            raise ValueError("names no contract, group or item; name one, or set lis.default")
        return self

    def fits(self, contract: str, item: str, group: str | None) -> bool:
        """Whether a line of this contract, item and group of items is meant."""
        return self.contract in {None, contract} and (
            not (self.groups or self.items) or item in self.items or group in self.groups
        )


class LisSettings(SettingsGroup):
    """The laboratory systems. Each further table `[lis.<name>]` is one adapter, with the adapter's own keys.

    The key `adapter` in it names the kind of adapter where that is not the table's name. What else is in it, the adapter's own
    model reads.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, dict[str, Any]]

    default: Basic[str] = "folder"
    """Name of the `[lis.<name>]` table whose laboratory system gets the orders that no route and no contract sends elsewhere."""
    call_timeout: Seconds = 60.0
    """Seconds that one call to an adapter may take; after that its outcome counts as unknown."""
    collect_interval: Seconds = 10.0
    """Seconds between two collections of results."""
    routes: tuple[LisRouteSettings, ...] = ()
    """Which lines go to which laboratory system, where several share the orders."""

    @property
    def tables(self) -> Mapping[str, Mapping[str, Any]]:
        """The adapter tables by name, each with all of its keys."""
        return self.__pydantic_extra__ or {}


class LoggingSettings(SettingsGroup):
    """The log, on standard error. It never contains a name, a birth date, a token or a payload."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged."""
    format: Literal["json", "console"] = "console"
    """`json`: one object per line, for machines; `console`: for people."""


class ResultsSettings(SettingsGroup):
    """Reports, observations and documents on their way to the service."""

    documents: Basic[Literal["upload", "host", "none"]] = "upload"
    """How result documents reach the service: `upload` as Binary, `host` by our own API (partners must be able to reach it),
    `none` omits them (stage, where no laboratory provides printed forms)."""
    send_interpretation: bool = False
    """Whether flags (high, low, …) are sent as Observation.interpretation; the interface has no field for them.
    Susceptibilities (S, I, R) are always sent, since in microbiology they are the result."""
    send_notes: bool = False
    """Whether notes of observations are sent as Observation.comment; the interface has no field for them."""
    order_document_code: str | None = None
    """Nomenclature code of a report that is one document for a whole order. If not set, the code of the order's first line."""
    several_tests_code: str | None = None
    """Nomenclature code of a report about several tests. If not set, that of the first test that it names, else of the first line
    that it covers."""
    max_document: Annotated[int, Field(ge=1)] = 14_000_000
    """Largest document in bytes; a larger one is held for an operator. An upload carries it in Base64, a third larger: 14 MB
    fit a service that accepts requests of 20 MB."""
    left_out: Literal["hold", "keep"] = "hold"
    """What happens to a new version that omits values which were final: `hold` asks an operator; `keep` is for a laboratory
    system that sends only what is new, and adds the values and lines of the previous versions."""
    patient_mismatch: Literal["hold", "note", "ignore"] = "hold"
    """What happens to a result that names another name, birth date, sex or identifier than its order's patient: `hold` asks
    an operator, `note` delivers it with a warning in the order's timeline, `ignore` compares nothing."""
    unknown_birth_dates: tuple[date, ...] = (date(1900, 1, 1),)
    """Birth dates that stand for an unknown one, in a result or an order: they are not compared."""
    mappings: Basic[Path | None] = None
    """Folder with the tables codes.csv, units.csv and answers.csv, such as `config/mappings`. If not set, units and
    answers pass as they come, and LOINC codes alone: any other code of an observation holds its report."""
    host_days: Annotated[int, Field(ge=1, le=36500)] | None = None
    """With `documents = "host"`: days after which the address of a document expires. If not set, as long as the order is kept."""
    print_reports: bool = False
    """Whether a plain PDF is made of the observations of a final report that comes without a document."""
    print_name: str = ""
    """The laboratory's name and address at the top of such a PDF, line by line."""
    print_logo: Path | None = None
    """A PNG or JPEG next to that name."""
    print_font: Path | None = None
    """The TrueType font of such a PDF. If not set, DejaVu Sans where it is installed, else one with Latin letters only; a report
    with letters that the font lacks is delivered without a PDF."""


class RetentionSettings(SettingsGroup):
    """Days after which finished work is removed. Unfinished work is never removed."""

    identity_days: Days = 30
    """Days that names, birth dates and contacts are kept after an order was closed; and what a result says of its patient, after
    the result was delivered or dismissed."""
    document_days: Days = 30
    """Days that documents are kept after they were delivered."""
    refused_days: Days = 30
    """Days that the raw text of a message which an adapter refused is kept after it came last. What is known of it apart from
    that is kept as long as failures are, and for as long as it waits for an operator."""
    journal_days: Days = 730
    """Days that a closed order and its timeline are kept."""
    label_days: Days = 90
    """Days for which a repeated request for a basket gets the same labels. After that only the barcodes are kept, so that none is
    ever issued again."""
    catalogue_days: Days = 90
    """Days that a catalogue version is kept after it was replaced. The last ten are always kept, and each for as long as an
    order may still be assessed by it (`rules.look_back_days`)."""
    failure_days: Annotated[Days, Field(ge=90)] = 180
    """Days that failures (rejected, in dead letter, dismissed) stay visible; at least 90."""
    audit_days: Annotated[Days, Field(ge=365)] = 3650
    """Days that records of the audit are kept; at least 365. The oldest go, and the rest stays verifiable."""


class RulesSettings(SettingsGroup):
    """The assessment of orders. `[rules.severities]` overrides the severity of single rules."""

    severities: dict[str, SeveritySetting] = Field(default_factory=dict)
    """Rule id to `refuse`, `hold`, `warn` or `off`; a rule that is not listed keeps its own. `lab-agent rules` lists them."""
    refusal_limit: Annotated[int, Field(ge=1)] = 20
    """Circuit breaker: after this many rejections by one rule within `refusal_window`, its orders are held instead, with an
    alert."""
    refusal_window: Seconds = 3600.0
    """Seconds over which `refusal_limit` counts."""
    look_back_days: Annotated[int, Field(ge=1, le=366)] = 7
    """Days that an order may have been on its way before the agent saw it, as after a long outage: it is assessed by the
    catalogue versions of that time. Orders in the store are assessed by the versions of their time however long they wait."""
    future_tolerance: Seconds = 300.0
    """Seconds that a clinic's clock may be ahead of ours."""
    alignment_tolerance: Seconds = 900.0
    """Seconds by which the samples of a glucose tolerance test may deviate from their time points."""
    old_order_beside_others: bool = False
    """Whether a follow-up study (190.1558) needs the number of the earlier order beside other tests, too, not only alone."""
    label_pattern: Annotated[str, AfterValidator(_check_regex)] = r"[0-9A-Za-z][0-9A-Za-z._\-]{2,29}"
    """Regular expression that a whole barcode must match."""
    messages: Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]+)*$")] = "en"
    """Language of the reasons that a clinic reads. `en` is built in; any other is the file `<language>.toml` in
    `messages_folder`, with a sentence for every rule."""
    messages_folder: Path | None = None
    """Folder of the translated reasons. If not set, those that come with the program (`de`)."""


class StoreSettings(SettingsGroup):
    """The database of orders, results, jobs and tokens. All processes of one laboratory share it."""

    url: Basic[str] = Field(default="sqlite:///lab-agent.db", pattern=r"^(sqlite|postgres(ql(\+psycopg)?)?)://", repr=False)
    """Address of the database: `sqlite:///path` (three slashes: relative to the working directory; four: absolute) or
    `postgresql://user:password@host/name` for several workers."""
    encryption_keys: Basic[Annotated[list[SecretStr], Field(min_length=1)]]
    """Keys of the encryption at rest, newest first. The first encrypts; all of them decrypt, so that a key can be replaced.
    `lab-agent init` creates one. Without them, tokens, identification data and documents cannot be read."""
    mark: Path | None = None
    """File, outside the database and its backups, that marks how far the database was: one that was restored from a backup is
    noticed by it. Each machine has its own. If not set, `<database file>.mark` for SQLite, and none for PostgreSQL."""


class WorkerSettings(SettingsGroup):
    """The daemon `lab-agent run`."""

    mode: Basic[Literal["normal", "observe"]] = "normal"
    """`observe` fetches and assesses orders, and writes nothing to the service or the LIS."""
    ignore_before: Basic[AwareDatetime | None] = None
    """Orders created before this time are ignored: the backlog at a first start.
    With an offset, as in 2026-01-31T00:00:00+01:00."""
    poll_interval: Seconds = 15.0
    """Seconds between two polls for new orders while orders come in."""
    poll_longest: Seconds = 120.0
    """The poll interval grows up to this many seconds while nothing new comes in."""
    probe_longest: Annotated[Seconds, Field(le=60)] = 60.0
    """Longest wait in seconds between two requests to a service that answers nothing; all else waits until one is answered."""
    second_look_after: Seconds = 5.0
    """Seconds between the first list of an order's Tasks and the second; the order is assessed when both are equal."""
    lease: Seconds = 180.0
    """Seconds for which a worker holds the lease of a job. Must be longer than one call to the service or to a LIS may take."""
    concurrency: Annotated[int, Field(ge=1, le=256)] = 8
    """How many jobs of one group (handovers, uploads, Task updates) run at the same time."""
    acknowledge_status: Literal["received", "accepted", "ready", "in-progress", "on-hold"] | None = None
    """Task status to set when the laboratory accepts a line. If not set, Tasks stay `requested` until they end."""
    on_line_error: Literal["cancel_line", "cancel_order"] = "cancel_line"
    """What a rejected line does to the others: `cancel_line` does not affect them, `cancel_order` rejects the whole order."""
    mixed_order_status: Literal["completed", "cancelled"] = "completed"
    """How the order-level Task ends where some of its lines were completed and others were not."""
    reconcile_interval: Seconds = 300.0
    """Seconds between two reconciliations, which find the open orders that were withdrawn."""
    hold_retry: Seconds = 300.0
    """Seconds after which a held order is assessed again automatically; the waits grow with the time for which it has been held,
    up to an hour."""
    unreadable_after: Seconds = 900.0
    """Seconds for which an unreadable resource of an order is fetched again before the order is held with an alert."""
    unreadable_refuse_after: Seconds | None = None
    """Seconds after which an order with an unreadable resource is rejected. If not set, it is held until it can be read."""
    drain_timeout: Seconds = 30.0
    """Seconds that running jobs get to finish when the program is stopped."""
    backoff_first: Seconds = 2.0
    """Longest first wait in seconds after a failure; it doubles with each attempt."""
    backoff_longest: Seconds = 300.0
    """Longest wait in seconds between two attempts."""


class BackupSettings(SettingsGroup):
    """What `lab-agent backup` writes, and how old the newest copy may be. See docs/restore.md."""

    folder: Basic[Path | None] = None
    """Folder of the backups, best on another disk or machine. Where it is set, their age is watched."""
    keep: Annotated[int, Field(ge=1)] = 14
    """How many backups are kept; older ones are deleted after a new one was verified."""
    keep_days: Annotated[int, Field(ge=1)] = 30
    """Days for which a backup is kept at most. The newest one always is."""
    encrypt: bool = False
    """Whether backups are encrypted whole, with the first of `store.encryption_keys`. Names, documents and tokens always are; the
    rest, medical data without names, only with this."""
    after: tuple[str, ...] = ()
    """Program and its arguments that `lab-agent backup` runs once a backup was read whole and older ones are deleted: a copy to
    another place, a ping. No shell reads them; the variable BACKUP_FILE has the path of the backup. Any exit code but 0 is one of
    the backup."""
    max_age: Seconds = 93_600.0
    """Seconds that the newest file in `folder` may be old, whoever wrote it, before an alert opens: a day and two hours."""


class MonitoringSettings(SettingsGroup):
    """When an alert opens. What each means, and how it is mended, is in docs/conditions.md."""

    interval: Seconds = 30.0
    """Seconds between two looks at operation, which open and close alerts."""
    heartbeat_interval: Seconds = 10.0
    """Seconds between two heartbeats of the worker in the database. After six without one, it counts as not running or frozen."""
    alert_after: Seconds = 1800.0
    """Seconds after which an alert says that a job has failed all that time, although it is tried again and again."""
    alert_after_attempts: Annotated[int, Field(ge=2)] = 20
    """Attempts after which an alert says that a job fails, even if it has failed for less than `alert_after`."""
    clock_tolerance: Seconds = 120.0
    """Seconds by which our clock and the exchange service's may differ. Beyond it no order is rejected for its times."""
    slow_after: Seconds = 10.0
    """Seconds that a call to the exchange service may take. An alert says so where half of the calls take longer."""
    disk_reserve: Annotated[int, Field(ge=0)] = 1_000_000_000
    """Bytes that must be free on the disks of the database, the log and the laboratory systems' folders."""
    log_folder: Path | None = None
    """Folder of the log, where its disk is to be watched, such as /var/log."""
    api_interval: Seconds = 60.0
    """Seconds between two looks whether the laboratory's API answers. It is looked at where `api.public_url`, `api.tokens` or
    `api.basic` is set."""
    api_address: HttpAddress | None = None
    """Address at which the agent reaches lab-api, without the prefix, such as http://10.0.0.5:8482. If not set, `api.host` and
    `api.port` on this machine."""
    public_api: bool = True
    """Whether to look at `api.public_url`, too. Set it to false where this machine cannot reach its own network from outside."""
    api_ca_file: FilePath | None = None
    """Certificates (PEM) of the authority of the public address, if it is not a public one."""
    refused_callers_after: Annotated[int, Field(ge=1)] = 10
    """Requests of callers of the laboratory's API, refused for one reason within an hour, of which more open an alert."""
    lis_silent_after: Seconds = 14_400.0
    """Seconds by which a laboratory system's results may be overdue, and nothing come from it, before an alert says so."""
