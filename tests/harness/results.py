"""A bench for results: the sandbox over ASGI with one order, a store in which it is submitted, and the agent's own handlers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import httpx

from lab_agent import bootstrap
from lab_agent.bootstrap import Components
from lab_agent.catalogue.spreadsheet.csv_files import load_catalogue
from lab_agent.exchange.authenticator import Authenticator
from lab_agent.exchange.client import ExchangeClient, http_options
from lab_agent.lis.lab_messages import LabMessage, LabReport, ReportedObservation, ReportStatus
from lab_agent.lis.laboratory_system import NoAdapters
from lab_agent.orders.job_actions import retry_job
from lab_agent.orders.line_lifecycle import withdraw_line, withdraw_order
from lab_agent.orders.order_assessment import CatalogueSource
from lab_agent.orders.patient_data import pack_identity
from lab_agent.orders.records import LabelUse, LineRecord, OrderRecord, WorkOrder
from lab_agent.queue.job_records import Job, JobKind
from lab_agent.queue.job_runner import JobRunner
from lab_agent.queue.outages import OutageTracker
from lab_agent.queue.retry import Backoff
from lab_agent.results import result_actions
from lab_agent.results.mapping_loader import MappingCache
from lab_agent.results.records import ReportRecord
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.rules.catalogue_history import CatalogueHistory
from lab_agent.settings.exchange import UrlTemplateSettings
from lab_agent.settings.root import Settings
from lab_agent.shared import exact_json
from lab_agent.shared.http_client import HttpClient
from lab_agent.shared.ids import LineKey, OrderKey, ResourceId, report_key, work_order_key
from lab_agent.shared.metrics import Metrics
from lab_agent.shared.state_machines import JOBS_NEEDING_OPERATOR, LineState, OrderState, ReportState, WorkOrderState
from lab_agent.shared.values import Coding, Identifier, Quantity
from lab_agent.store.event_records import Alert, Event
from lab_agent.store.unit_of_work import UnitOfWork
from lab_sandbox.app import create_app
from lab_sandbox.config import CLINIC_GUID, RuleSettings, SandboxConfig
from lab_sandbox.demo.workspace import STU3_PATHS
from lab_sandbox.faults.plan import FaultPlan, FaultRule
from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.client import PartnerClient, open_partner_client
from lab_sandbox.partner.clinic import PlacedOrder, parse_placed_order
from lab_sandbox.partner.errors import Json
from lab_sandbox.partner.errors import decode as loads
from lab_sandbox.partner.result_reader import ReceivedReport, read_order_status, read_reports
from lab_sandbox.references import Ref
from tests.fakes.exchange_service import service_reachable
from tests.harness import settings as harness_settings
from tests.harness.clock import VirtualClock
from tests.harness.databases import InlineStore
from tests.harness.jobs import claim_jobs
from tests.harness.orders import ACCOUNT, BASE
from tests.harness.paths import CATALOGUE
from tests.harness.stu3_schema import find_violations

CODES = "http://codes.lab.example"
ORDER = OrderKey("RORDER")
PART = work_order_key(ORDER, "lis")
NOW = datetime(2026, 3, 3, 10, tzinfo=UTC)
ITEMS = ("001.001", "004.001", "005.001")
LOINC = "http://loinc.org"
AWAY = FaultRule(kind="status", status=503, route="POST /fhir/*")
"""The service takes nothing new."""
_SAMPLE_CATALOGUE = CatalogueHistory.from_catalogue(load_catalogue(CATALOGUE))


@dataclass(frozen=True)
class BenchOrder:
    """The order of a bench. `lab_codes`: item of the nomenclature → the laboratory's code; one line each, in this order."""

    key: OrderKey = ORDER
    lab_codes: Mapping[str, str] = field(default_factory=lambda: {item: f"lab-{n}" for n, item in enumerate(ITEMS)})
    line_keys: tuple[LineKey, ...] = tuple(LineKey(f"L{n}") for n in range(len(ITEMS)))
    barcode: str = "1000000017"
    accession: str | None = "A-1"


class _Laboratory(NoAdapters):
    """A laboratory system that takes note of every withdrawal."""

    def get(self, name: str | None = None) -> Any:
        del name
        return self

    async def cancel(self, order: OrderKey, lines: tuple[LineKey, ...], reason: str) -> None:
        assert order
        assert lines
        assert reason


@dataclass
class ResultsBench:
    app: Any
    settings: Settings
    store: InlineStore
    partner: PartnerClient
    placed: PlacedOrder
    exchange: ExchangeClient
    clock: VirtualClock
    mappings: MappingCache
    order: BenchOrder = field(default_factory=BenchOrder)
    catalogue: CatalogueSource = field(default=lambda: _SAMPLE_CATALOGUE)
    message_count: int = 0
    _runner: JobRunner | None = field(default=None)

    @property
    def runner(self) -> JobRunner:
        if self._runner is None:
            parts: dict[str, Any] = {"catalogue_cache": SimpleNamespace(view=self.catalogue), "adapters": _Laboratory()}
            parts |= {"exchange": self.exchange, "mapping_cache": self.mappings, "authenticator": None, "queries": None}
            made = Components(
                settings=self.settings, clock=self.clock, store=self.store, metrics=Metrics(), owner="bench", **parts
            )
            self._runner = JobRunner(
                store=self.store,
                clock=self.clock,
                handlers=bootstrap.build_handlers(made, parts["adapters"]),
                outages=OutageTracker(self.store, self.clock, service_reachable),
                owner="bench",
                lease=timedelta(seconds=60),
                backoff=Backoff(1, 10),
                random=lambda: 0.5,
                on_attempt=lambda *_: None,
            )
        return self._runner

    @property
    def matcher(self) -> Any:
        return bootstrap.build_matcher(self.settings, self.mappings, self.catalogue)

    def line_key(self, number: int) -> LineKey:
        return self.order.line_keys[number]

    def restart_agent(self, transport: httpx.AsyncBaseTransport, **changes: Any) -> None:
        """A new run of the agent, which reaches the service by this transport, with these settings of the exchange."""
        settings = self.settings.exchange.model_copy(update=changes)
        http = HttpClient(http_options(settings), transport=transport)
        self.exchange = ExchangeClient(settings, http, Authenticator(settings.oauth, http, self.store, self.clock, "again"))
        self._runner = None

    def inject_faults(self, *rules: FaultRule) -> None:
        self.app.state.service.faults.activate(FaultPlan(faults=rules))

    async def receive(self, content: LabMessage, name: str | None = None) -> ReportRecord:
        """Put a message into the inbox, and let everything that follows happen."""
        message = await self.accept(content, name)
        await self.run_until_idle()
        return await self.get_report(message)

    async def accept(self, content: LabMessage, name: str | None = None) -> str:
        """Put a message into the inbox, and let nothing follow yet; its name."""
        self.message_count += 1
        message = name or f"m{self.message_count}"
        await StoreInbox(self.store, self.clock, "lis").accept(message, content)
        return message

    async def run_due_jobs(self) -> bool:
        jobs = await claim_jobs(self.runner, tuple(JobKind), 10)
        for job in jobs:
            await self.runner.run(job)
        return bool(jobs)

    async def run_until_idle(self, rounds: int = 30) -> None:
        for _ in range(rounds):
            if not await self.run_due_jobs():
                waiting = [each for each in await self.jobs() if each.state.value in {"due", "outcome_unknown"}]
                if not waiting:
                    return
                self.clock.time += timedelta(seconds=15)

    async def release(self, held: ReportRecord) -> result_actions.ResultDecision:
        """Let an operator release it, and let everything that follows happen."""
        decided = await result_actions.release_result(self.store, self.matcher, held.key, **self.who)
        await self.run_until_idle()
        return decided

    @property
    def who(self) -> dict[str, Any]:
        return {"by": "ann", "note": "I asked", "now": self.clock.now()}

    async def dismiss(self, report: ReportRecord) -> result_actions.ResultDecision:
        """Let an operator dismiss it, and let everything that follows happen."""
        decided = await result_actions.dismiss_result(self.store, report.key, **self.who)
        await self.run_until_idle()
        return decided

    async def match(self, report: ReportRecord, *lines: str) -> result_actions.ResultDecision:
        """Let an operator match it to the order or these lines of it, and let everything that follows happen."""
        keys = tuple(map(LineKey, lines))
        decided = await result_actions.match_result(self.store, self.matcher, report.key, self.order.key, lines=keys, **self.who)
        await self.run_until_idle()
        return decided

    async def stuck_job(self) -> Job:
        (job,) = [each for each in await self.jobs() if each.state in JOBS_NEEDING_OPERATOR]
        return job

    async def retry_stuck(self) -> None:
        """Let an operator retry it, and let everything that follows happen."""
        await retry_job(self.store, (await self.stuck_job()).id, by="ann", now=self.clock.now())
        await self.run_until_idle()

    async def reload_tables(self) -> None:
        """Let an operator release what changed mapping tables complete, and let everything that follows happen."""
        self.mappings.reload()
        await result_actions.release_mapped_results(self.store, self.matcher, by="ann", now=self.clock.now())
        await self.run_until_idle()

    async def open_alerts(self) -> tuple[Alert, ...]:
        return await self.store.transact(lambda uow: uow.alerts.all_open())

    async def values(self, name: str = "hb") -> list[str]:
        """Every value that the service ever had of an observation of the report `rep`, oldest first."""
        return [str(each["valueQuantity"]["value"]) for each in await self.resource_versions("Observation", f"RORDER.rep.{name}")]

    async def statuses(self, name: str = ".hb", kind: str = "Observation") -> list[str]:
        """Every status that the service ever had of a part of the report `rep`, oldest first."""
        return [each["status"] for each in await self.resource_versions(kind, f"RORDER.rep{name}")]

    async def get_report(self, message: str) -> ReportRecord:
        return await self.store.transact(lambda uow: uow.reports.get_for_update(report_key("lis", message)))

    async def report_states(self) -> list[ReportState]:
        return [(await self.get_report(f"m{number}")).state for number in range(1, self.message_count + 1)]

    async def jobs(self, *, open_only: bool = True) -> tuple[Job, ...]:
        return await self.store.transact(lambda uow: uow.jobs.list_for_order(self.order.key, open_only=open_only))

    async def know_patient(self, **patient: Any) -> None:
        """Write who the patient of the order is, as `OrderPatient` has it, into the vault."""

        def write(uow: Any) -> None:
            uow.vault.save_identity(self.order.key, pack_identity(b"[]", exact_json.dumps(patient)), at=NOW)

        await self.store.transact(write)

    async def get_order(self) -> OrderRecord:
        return await self.store.transact(lambda uow: uow.orders.get_for_update(self.order.key))

    async def clinic_reports(self) -> list[ReceivedReport]:
        return await read_reports(self.partner, self.placed)

    async def order_status(self) -> Any:
        return await read_order_status(self.partner, self.placed)

    async def change_work_order(self, **changes: Any) -> None:
        def write(uow: Any) -> None:
            (part,) = uow.orders.work_orders(self.order.key)
            uow.orders.save_work_order(replace(part, **changes))

        await self.store.transact(write)

    async def withdraw(self, *lines: LineKey) -> None:
        """Let the partner withdraw these lines, or the whole order, as the worker notices it."""

        def write(uow: Any) -> None:
            for line in lines:
                withdraw_line(uow, line, self.clock.now(), "its Task was set to cancelled by somebody else", "cancelled")
            if not lines:
                text = "the order-level Task was set to cancelled by somebody else"
                withdraw_order(uow, self.order.key, self.clock.now(), text, "cancelled")

        await self.store.transact(write)
        await self.run_until_idle()

    async def line_states(self) -> list[str]:
        return [line.state.value for line in await self.store.transact(lambda uow: uow.orders.lines(self.order.key))]

    def event_texts(self, action: str) -> list[str]:
        return [event.text for event in self.store.records(Event) if event.action == action]

    async def resource_versions(self, kind: str, identifier: str) -> list[Json]:
        """Every version of a resource of ours that the service ever had, oldest first.

        `identifier` begins with the order's key, which stands for that of its part at the laboratory system.
        """
        identifier = identifier.replace(self.order.key, work_order_key(self.order.key, "lis"))
        found = [
            each for each in await self.partner.search(kind, {}) if each.get("identifier", [{}])[0].get("value") == identifier
        ]
        assert len(found) == 1, f"{len(found)} resources {identifier}"
        service = self.app.state.service
        kept = service.resources.find(Ref(kind, found[0]["id"]))
        return [loads(body) for body in reversed(service.store.versions(kept))]


def refused(count: int | None = 1, *, status: int = 422, route: str = "POST /fhir/DiagnosticReport") -> FaultRule:
    return FaultRule(kind="status", status=status, route=route, count=count)


def make_settings(results: dict[str, Any] | None = None, **more: Any) -> Settings:
    return harness_settings.make_settings(results=results or {}, **more)


@asynccontextmanager
async def open_bench(
    results: dict[str, Any] | None = None,
    *,
    exchange: dict[str, Any] | None = None,
    strict: bool = False,
    rules: dict[str, Any] | None = None,
    order: BenchOrder | None = None,
    **more: Any,
) -> AsyncIterator[ResultsBench]:
    """`order` is what the clinic orders, else three lines; `exchange` changes single settings of the agent; `strict` and `rules`
    are those of the service.
    """
    settings, order = make_settings(results, **more), order or BenchOrder()
    changes = {**({"paths": UrlTemplateSettings(**STU3_PATHS)} if strict else {}), **(exchange or {})}
    settings = settings.model_copy(update={"exchange": settings.exchange.model_copy(update=changes)})
    account = replace(ACCOUNT, spelling="fhir") if strict else ACCOUNT
    service_rules = RuleSettings(history_limit=100, **(rules or {}))
    config = SandboxConfig(base_url=BASE, strict=strict, rules=service_rules, tokens=harness_settings.SERVICE_TOKENS)
    app = create_app(config)
    store, clock = InlineStore(), VirtualClock(NOW)
    transport = httpx.ASGITransport(app)
    async with (
        open_partner_client(account, transport=httpx.ASGITransport(app)) as partner,
        HttpClient(http_options(settings.exchange), transport=transport) as http,
    ):
        placed = parse_placed_order(await _place_order(partner, order), f"{CODES}/labels")
        tokens = Authenticator(settings.exchange.oauth, http, store, clock, "bench")
        exchange = ExchangeClient(settings.exchange, http, tokens)
        mappings = MappingCache(settings.results.mappings)
        bench = ResultsBench(app, settings, store, partner, placed, exchange, clock, mappings, order)
        await _store_submitted_order(bench)
        yield bench
        await tokens.aclose()
        await _check_all_valid(partner)


async def _check_all_valid(partner: PartnerClient) -> None:
    """Whatever a test brought to the service is legal."""
    nomenclature = partner.account.service_system("nomenclature")
    uploaded = [each for kind in ("Observation", "DiagnosticReport") for each in await partner.search(kind, {})]
    assert [said for each in uploaded for said in find_violations(each, nomenclature)] == []


def make_report(*observations: ReportedObservation, **fields: Any) -> LabReport:
    """A final report of the order with one haemoglobin, unless something else is said."""
    given: dict[str, Any] = {"report_id": "rep", "status": ReportStatus.FINAL, "order": ORDER, "effective": NOW, "issued": NOW}
    return LabReport(**{**given, "observations": observations or (haemoglobin("13.20"),), **fields})


def haemoglobin(value: str, **fields: Any) -> ReportedObservation:
    given: dict[str, Any] = {"id": "hb", "code": Coding(system=LOINC, code="718-7"),
                             "value_quantity": Quantity(value=Decimal(value), unit="g/dL")}  # fmt: skip
    return ReportedObservation(**{**given, **fields})


def make_order(key: OrderKey, task: str, lab_order: Json, *, at: datetime = NOW, **fields: Any) -> OrderRecord:
    """An order as it stands after the handover."""
    given = {"state": OrderState.HANDED_OVER, "contract": "C-100", "lab_order": exact_json.dumps(lab_order), **fields}
    return OrderRecord(key=key, task_id=ResourceId(task), seen_at=at, changed_at=at, **given)


def put_order(
    uow: UnitOfWork,
    order: OrderRecord,
    lines: Mapping[LineKey, tuple[str, str, str]],
    labels: Mapping[str, LineKey],
    specimen: str,
    accession: str | None,
    adapter: str = "lis",
) -> None:
    """Write such an order; `lines` are item, Task and ProcedureRequest of each, `labels` the lines of each barcode."""
    key, at, patient = order.key, order.changed_at, order.patient_reference
    uow.orders.add(order)
    state = WorkOrderState.HANDED_OVER
    uow.orders.save_work_order(WorkOrder(order=key, adapter=adapter, state=state, changed_at=at, accession=accession))
    for line, (item, task, request) in lines.items():
        ids = {"task_id": ResourceId(task), "procedure_request_id": ResourceId(request)}
        accepted = LineState.ACCEPTED
        uow.orders.add_line(LineRecord(key=line, order=key, item=item, adapter=adapter, state=accepted, changed_at=at, **ids))
    tube = {"order": key, "specimen_id": specimen, "patient_reference": patient}
    uow.orders.set_labels(key, [LabelUse(barcode=barcode, line=line, **tube) for barcode, line in labels.items()])


async def _place_order(partner: PartnerClient, order: BenchOrder) -> Json:
    account = partner.account
    patient = await partner.create_patient(
        {
            "resourceType": "Patient",
            "meta": account.security_meta("read"),
            "name": [{"family": "Sample", "given": ["Anna", "Maria"]}],
            "gender": "female",
            "birthDate": "1980-02-29",
        }
    )
    return await partner.create_order(_order_bundle(account, account.reference("Patient", patient["id"]), order))


def _order_bundle(account: PartnerAccount, patient: str, order: BenchOrder) -> Json:
    def concept(system: str, code: str) -> Json:
        return {"coding": [{"system": system, "code": code}]}

    subject, read, both = {"reference": patient}, account.security_meta("read"), account.security_meta("read", "updatebody")
    urn = "urn:uuid:00000000-0000-4000-8000-{:012}".format
    found: list[Json] = [
        {"resourceType": "Task", "meta": both, "status": "requested",
         "code": concept(account.service_system("task_type"), "OrderProcessingTask")},
        {"resourceType": "Specimen", "meta": read, "type": concept(account.service_system("specimen-type"), "108"),
         "subject": subject,
         "collection": {"collectedDateTime": "2026-01-05T07:30:00+00:00",
                        "method": concept(account.service_system("treatment_protocol"), "fasting")},
         "container": [{"identifier": [{"system": account.lab_system("labels"), "value": order.barcode}],
                        "type": concept(account.service_system("specimen_type"), "EDTA"), "specimenQuantity": {"value": 3}}],
         "extension": [{"url": f"{account.base_url}extra/supportingInfo", "valueString": "a,b"}]},
    ]  # fmt: skip
    for item in order.lab_codes:
        found.append(
            {"resourceType": "ProcedureRequest", "meta": read, "requisition": {"system": "urn:clinic:orders", "value": "77"},
             "identifier": [{"system": "urn:clinic:lines", "value": item}],
             "supportingInfo": [{"identifier": {"system": account.lab_system("contract"), "value": "C-100"}}],
             "status": "active", "code": concept(account.service_system("nomenclature"), item), "subject": subject,
             "occurrenceDateTime": "2026-01-05T08:00:00+00:00", "specimen": [{"reference": urn(1)}]}
        )  # fmt: skip
        found.append(
            {"resourceType": "Task", "meta": both, "status": "requested", "basedOn": [{"reference": urn(len(found) - 1)}],
             "partOf": [{"reference": urn(0)}]}
        )  # fmt: skip
    entries = [{"fullUrl": urn(number), "resource": each} for number, each in enumerate(found)]
    return {"resourceType": "Bundle", "type": "collection", "entry": entries}


async def _store_submitted_order(bench: ResultsBench) -> None:
    """Write the order into the store as it stands after the handover."""
    placed = bench.placed
    specimens = await bench.partner.search("Specimen", {})
    specimen = specimens[0]["id"]
    lab_order = {
        "lines": [
            {"key": bench.line_key(n), "item": line.item, "lab_code": bench.order.lab_codes[line.item], "specimens": [specimen]}
            for n, line in enumerate(placed.lines)
        ],
        "specimens": [{"id": specimen, "containers": [{"barcode": bench.order.barcode}]}],
    }
    order = make_order(
        bench.order.key,
        placed.order_task,
        lab_order,
        requisition=Identifier(system="urn:clinic:orders", value="77"),
        counterparty=CLINIC_GUID,
        patient_reference=placed.patient,
        received=exact_json.dumps([await bench.partner.search("ProcedureRequest", {}), specimens]),
    )
    lines = {bench.line_key(n): (line.item, line.task, line.procedure_request) for n, line in enumerate(placed.lines)}

    def write(uow: Any) -> None:
        put_order(uow, order, lines, {bench.order.barcode: bench.line_key(0)}, specimen, bench.order.accession)

    await bench.store.transact(write)
