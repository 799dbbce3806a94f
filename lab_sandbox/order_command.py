"""`lab-sandbox order`: test orders from the clinic's side, followed until their results are there."""

from __future__ import annotations

import asyncio
import time
import tomllib
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from lab_sandbox.config import ConfigError, load_config
from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.account_file import is_local, read_account, sandbox_account
from lab_sandbox.partner.basket import Basket, choose_item, orderable_items
from lab_sandbox.partner.client import TIMEOUT, PartnerClient, open_partner_client
from lab_sandbox.partner.clinic import Clinic, PlacedLine, PlacedOrder, reference_id
from lab_sandbox.partner.errors import Json, PartnerError, encode
from lab_sandbox.partner.order_bundle import LabelSequence
from lab_sandbox.partner.order_generator import OrderPlan, OrderVariety, generate_plan
from lab_sandbox.partner.random_source import seeded_random
from lab_sandbox.partner.result_reader import OrderStatus, ReceivedReport, read_order_status, read_reports, value_fields

_INTERVAL = 0.5


def order(
    tests: Annotated[
        str | None, typer.Option(help="Codes of the tests of each order, by commas. Default: any of the offer.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=1000, help="How many orders.")] = 1,
    service: Annotated[Path | None, typer.Option(help="The sandbox's settings, which name the clinic.")] = None,
    clinic: Annotated[
        Path | None, typer.Option(help="The clinic's account at a stage (TOML), instead of that of the sandbox; docs/sandbox.md.")
    ] = None,
    faults: Annotated[Path | None, typer.Option(help="A fault plan, active meanwhile; needs `run --fault-admin`.")] = None,
    watch: Annotated[list[str] | None, typer.Option(help="Send nothing, and go on waiting for this order-level Task.")] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds until every order has to have ended.")] = 300.0,
    seed: Annotated[str | None, typer.Option(help="Makes tests and patients repeatable. Default: the time.")] = None,
) -> None:
    """Send test orders as the clinic, and wait for their results. Exit code 0 only if all were completed."""
    try:
        account = read_account(clinic) if clinic else sandbox_account(load_config(service))
        run = TestRun(seed=seed or f"{time.time():.0f}", codes=_split(tests), count=count)
        done = asyncio.run(_run(account, run, tuple(watch or ()), faults, timeout))
    except (PartnerError, ConfigError) as exc:
        typer.echo(str(exc), err=True)
        raise typer.Exit(2) from exc
    raise typer.Exit(0 if done else 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRun:
    """What is ordered: `count` orders of the tests with these codes, or of any."""

    __test__ = False  # no test of pytest

    seed: str
    codes: tuple[str, ...]
    count: int


@dataclass(slots=True)
class FollowedOrder:
    """An order that was sent, and what was last seen of it."""

    placed: PlacedOrder
    sent_at: float = field(default_factory=time.monotonic)
    seen: str = ""
    status: OrderStatus | None = None

    @property
    def name(self) -> str:
        """How it is called in the output."""
        return self.placed.requisition or self.placed.order_task

    @property
    def is_completed(self) -> bool:
        """Whether every Task is completed."""
        return self.status is not None and {self.status.order, *self.status.lines.values()} == {"completed"}


async def _run(account: PartnerAccount, run: TestRun, watched: Sequence[str], faults: Path | None, timeout: float) -> bool:
    async with open_partner_client(account) as client, _active_faults(account, faults):
        followed = [FollowedOrder(await find_order(client, task)) for task in watched] or await _send(client, run)
        try:
            async with asyncio.timeout(timeout):
                await follow(client, followed)
        except (TimeoutError, asyncio.CancelledError) as exc:
            _say_how_to_go_on(followed, timeout if isinstance(exc, TimeoutError) else None)
            if isinstance(exc, asyncio.CancelledError):
                raise
        for each in followed:
            await _print_results(client, each)
    completed = sum(each.is_completed for each in followed)
    typer.echo(f"{completed} of {len(followed)} orders completed.")
    return completed == len(followed)


async def _send(client: PartnerClient, run: TestRun) -> list[FollowedOrder]:
    offered = orderable_items(await client.nomenclature(), await client.eta())
    sender = Clinic(client, LabelSequence(first=int(time.time() * 10) % 10**10), _now, f"TEST-{run.seed}")
    sent = []
    for number in range(run.count):
        placed = await sender.place_order(make_plan(client.account.contract, offered, run, number))
        sent.append(FollowedOrder(placed))
        tests = ", ".join(line.item for line in placed.lines)
        typer.echo(f"{placed.requisition}: sent, {tests}; Task {placed.order_task}")
    return sent


def make_plan(contract: str, offered: Sequence[Json], run: TestRun, number: int) -> OrderPlan:
    """One order. The patient has a name that the interface keeps for the anonymous. Raises `PartnerError` for an unknown test."""
    seed = f"{run.seed}/{number}"
    if not run.codes:
        return generate_plan(contract, offered, seed, OrderVariety(anonymous_share=1.0))
    items = {each["id"]: each for each in offered}
    if unknown := [code for code in run.codes if code not in items]:
        raise PartnerError(f"not offered now under contract {contract}: {', '.join(unknown)}")
    rng = seeded_random(seed)
    chosen = tuple(choose_item(items[code], rng) for code in run.codes)
    return OrderPlan(seed=seed, basket=Basket(contract, chosen), patient="anonymous")


async def find_order(client: PartnerClient, task: str) -> PlacedOrder:
    """An order that was sent before, by the id of its order-level Task."""
    reference = client.account.reference("Task", task)
    parts = await client.search(client.account.type_name("Task"), {"part-of": reference})
    if not parts:
        raise PartnerError(f"Task {task} has no lines: it is not the order-level Task of an order")
    lines = tuple(PlacedLine("", "", reference_id(part["basedOn"][0]["reference"]), part["id"]) for part in parts)
    return PlacedOrder(requisition="", order_task=task, lines=lines, patient="", barcodes=())


async def follow(client: PartnerClient, orders: Iterable[FollowedOrder]) -> None:
    """Print a line whenever an order has moved, until all have ended."""
    waiting = list(orders)
    while waiting:
        for each in waiting:
            each.status = await read_order_status(client, each.placed)
            if str(each.status) != each.seen:
                each.seen = str(each.status)
                typer.echo(f"{each.name}: {each.seen} ({time.monotonic() - each.sent_at:.1f} s)")
        waiting = [each for each in waiting if each.status is None or not each.status.has_ended()]
        if waiting:
            await asyncio.sleep(_INTERVAL)


async def _print_results(client: PartnerClient, order: FollowedOrder) -> None:
    for reasons in () if order.status is None else order.status.reasons.values():
        for reason in reasons:
            typer.echo(f"{order.name}: refused: {reason}")
    for report in await read_reports(client, order.placed):
        documents = f", {len(report.documents)} documents" if report.documents else ""
        typer.echo(f"{order.name}: {report.status} report{documents}")
        for line in describe_values(report):
            typer.echo(f"    {line}")


def describe_values(report: ReceivedReport) -> list[str]:
    """Each value, digit for digit as the service has it."""
    return [f"{_name_of(each)} = {_value_of(each)}" for each in report.observations]


def _name_of(observation: Json) -> str:
    code = observation.get("code", {})
    coding: Json = next(iter(code.get("coding", ())), {})
    return str(code.get("text") or coding.get("display") or coding.get("code", "?"))


def _value_of(observation: Json) -> str:
    name = next(iter(value_fields(observation)), None)
    value: Any = None if name is None else observation[name]
    if value is None:
        return "no value"
    if isinstance(value, dict) and "value" in value:
        return f"{value.get('comparator', '')}{value['value']} {value.get('unit', '')}".strip()
    return value if isinstance(value, str) else encode(value).decode()


def _say_how_to_go_on(orders: Iterable[FollowedOrder], timeout: float | None) -> None:
    left = [each.placed.order_task for each in orders if each.status is None or not each.status.has_ended()]
    why = "Stopped." if timeout is None else f"Not all orders have ended within {timeout:.0f} s."
    again = " ".join(f"--watch {task}" for task in left)
    typer.echo(f"{why} To go on waiting: lab-sandbox order {again}", err=True)


@asynccontextmanager
async def _active_faults(account: PartnerAccount, plan: Path | None) -> AsyncIterator[None]:
    """Let the sandbox have these faults meanwhile."""
    if plan is None:
        yield
        return
    if not is_local(account.base_url):
        raise PartnerError("--faults is for a sandbox on this machine.")
    content, address = _read_plan(plan), f"{account.base_url}sandbox/faults"
    async with httpx.AsyncClient(trust_env=False, timeout=TIMEOUT) as http:
        answer = await http.put(address, content=encode(content), headers={"Content-Type": "application/json"})
        if answer.status_code == 404:
            raise PartnerError("this sandbox takes no faults over HTTP: start it with `lab-sandbox run --fault-admin`")
        if answer.is_error:
            raise PartnerError(f"{plan}: {answer.text}")
        try:
            yield
        finally:
            await http.delete(address)


def _read_plan(plan: Path) -> Json:
    try:
        return tomllib.loads(plan.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise PartnerError(f"{plan} cannot be read: {exc}") from exc


def _split(codes: str | None) -> tuple[str, ...]:
    return tuple(code.strip() for code in (codes or "").split(",") if code.strip())


def _now() -> datetime:
    return datetime.now().astimezone()
