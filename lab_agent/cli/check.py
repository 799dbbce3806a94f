"""`lab-agent check`: tries everything that the agent needs and looks at how it works, and says how to correct what is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from lab_agent import bootstrap
from lab_agent.bootstrap import Components
from lab_agent.cli.agent_life import is_asked_offline
from lab_agent.cli.check_exchange import SKIPPED, check_service
from lab_agent.cli.check_local import check_files, check_local
from lab_agent.cli.check_result import CheckResult, CheckStatus, failed_checks
from lab_agent.cli.check_units import check_units
from lab_agent.cli.context import ConfigOption, JsonOption
from lab_agent.cli.operation import Operation, read_operation
from lab_agent.cli.operation_output import condition_lines, format_worker, number_lines, operation_to_json
from lab_agent.cli.output import console, print_heading, print_json, print_line
from lab_agent.settings.introspection import iter_masked_values
from lab_agent.settings.root import Settings, load_settings
from lab_agent.shared.conditions.model import ConditionId, OpenCondition
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.shared.errors import CryptoError, LabAgentError, SettingsError
from lab_agent.shared.systemd_units import with_typed_commands
from lab_agent.shared.text import escape_unprintable
from lab_agent.store.crypto import Cipher, new_key
from lab_agent.store.opening import build_cipher
from lab_agent.store.queries import Queries
from lab_agent.store.schema import upgrade as upgrade_schema
from lab_agent.store.unit_of_work import Store

_STATUS_STYLES = {CheckStatus.OK: "green", CheckStatus.TODO: "yellow", CheckStatus.WRONG: "bold red", CheckStatus.SKIPPED: "dim"}


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What was tried, and how operation is; None where there is nothing yet that could work."""

    checks: Sequence[CheckResult]
    operation: Operation | None = None

    @property
    def wrong(self) -> int:
        """How many checks went wrong."""
        return sum(line.status is CheckStatus.WRONG for line in self.checks)

    @property
    def exit_code(self) -> int:
        """2 while something is critical, 1 while a check is wrong or a person is needed otherwise, else 0."""
        return max(0 if self.operation is None else self.operation.exit_code, int(self.wrong > 0))

    @property
    def needing_person(self) -> int:
        """How many conditions a person has to see to."""
        return 0 if self.operation is None else len(self.operation.needing_person)


def check(
    config: ConfigOption = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Skip what needs the network; the agent on this machine is asked.")
    ] = False,
    files: Annotated[
        bool,
        typer.Option(
            "--files", help="Check only settings, and the keys, tables and maps that they name; the catalogue is compared."
        ),
    ] = False,
    show_settings: Annotated[bool, typer.Option("--settings", help="Print all settings first, with secrets masked.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check settings, connections and operation. Exit code 1 if a person is needed, 2 if something is critical."""
    try:
        settings = load_settings(config)
    except SettingsError as exc:
        report = _report_invalid_settings(exc, config)
    else:
        if show_settings and not as_json:
            _print_settings(settings)
        report = asyncio.run(_check_files(settings, config) if files else _run_checks(settings, config, offline=offline))
    if as_json:
        _print_json(report)
    else:
        _print_report(report)
    if report.exit_code:
        raise typer.Exit(report.exit_code)


def _report_invalid_settings(error: SettingsError, config: Path | None) -> CheckReport:
    """All that can be told: the database, which would say more, is named by the settings. They are as old as their file."""
    now = datetime.now(UTC)
    since = datetime.fromtimestamp(config.stat().st_mtime, UTC) if config is not None and config.exists() else now
    told = OpenCondition(condition=CONDITIONS[ConditionId.SETTINGS_INVALID], detail=str(error), since=since)
    return CheckReport(failed_checks("settings", error), Operation(at=now, conditions=(told,), store=None))


async def _check_files(settings: Settings, config: Path | None) -> CheckReport:
    return CheckReport([*await _check_settings(config), *await check_files(settings)])


async def _check_settings(config: Path | None) -> list[CheckResult]:
    """That they are valid for the worker, which was tried before, and whether they are for the other units."""
    own = CheckResult("settings", CheckStatus.OK, str(config or "from the environment"))
    return [own, *await asyncio.to_thread(check_units, config)]


async def _run_checks(settings: Settings, config: Path | None, *, offline: bool) -> CheckReport:
    found = await _check_settings(config)
    local = await check_local(settings, offline=offline)
    try:
        async with (
            _open_store(settings, is_readable=local.has_store) as store,
            bootstrap.open_components(settings, store=store, config=config) as parts,
        ):
            # The service first: what its answers tell of, such as its clock, the look at operation knows then.
            service = SKIPPED if offline else await check_service(parts)
            operation = await _read_operation(settings, parts, local.store_error, offline=offline)
    except (CryptoError, SettingsError) as exc:
        return CheckReport([*found, *local.results, *failed_checks("exchange", exc)])
    is_known = local.has_store or local.store_error is not None
    return CheckReport([*found, *local.results, *service], operation if is_known else replace(operation, store=None))


async def _read_operation(
    settings: Settings, parts: Components, store_error: LabAgentError | None, *, offline: bool
) -> Operation:
    """Look at operation. A store that has an error may be readable all the same, so it is tried again, by itself."""
    ask_agent = not offline or is_asked_offline(settings.status)
    if store_error is None:
        return await read_operation(parts, offline=offline, ask_agent=ask_agent)
    store = Store(settings.store.url, build_cipher(settings.store))
    try:
        parts = replace(parts, store=store, queries=Queries(store))
        return await read_operation(parts, offline=offline, ask_agent=ask_agent, store_error=store_error)
    finally:
        await store.close()


@asynccontextmanager
async def _open_store(settings: Settings, *, is_readable: bool) -> AsyncIterator[Store]:
    """Open the store. Where it cannot be read, which is reported already, the rest is checked with an empty one of its own."""
    with TemporaryDirectory() as folder:
        url = settings.store.url if is_readable else f"sqlite:///{folder}/check.db"
        if not is_readable:
            upgrade_schema(url)
        store = Store(url, build_cipher(settings.store) if is_readable else Cipher(new_key()))
        try:
            yield store
        finally:
            await store.close()


def _print_report(report: CheckReport) -> None:
    print_heading("Settings and connections")
    _print_results(report.checks)
    if (operation := report.operation) is not None:
        print_heading("Operation")
        page = console()
        for line in condition_lines(operation):
            page.print(line, soft_wrap=True)
        _print_results(_agent_results(operation))
        for name, text in number_lines(operation):
            print_line(f"{'':<10}{name:<17}{text}")
    found = [f"{report.wrong} of {len(report.checks)} checks wrong"] if report.wrong else []
    found += [f"{report.needing_person} to be seen to in operation"] if report.needing_person else []
    print_line(f"\n{'; '.join(found)}." if found else "\nNothing is wrong.")


def _agent_results(operation: Operation) -> list[CheckResult]:
    """The workers that live, or that there was none yet; one that should live and does not is a condition."""
    if operation.store is None:
        return []
    if not operation.store.agent.workers:
        return [CheckResult("agent", CheckStatus.TODO, "it has never run on this database", "start it: `lab-agent run`")]
    return [CheckResult("agent", CheckStatus.OK, format_worker(each, operation.at)) for each in operation.living]


def _print_results(results: Sequence[CheckResult]) -> None:
    page = console()
    width = max((len(line.name) for line in results), default=0) + 2
    for line in results:
        page.print(f"{line.status.value:<9} ", style=_STATUS_STYLES[line.status], end="")
        text = f"{line.name:<{width}}{line.detail}" + (f" — {line.hint}" if line.hint else "")
        page.print(escape_unprintable(with_typed_commands(text)), soft_wrap=True)


def _print_json(report: CheckReport) -> None:
    operation = None if report.operation is None else operation_to_json(report.operation)
    shown = {"checks": report.checks, "wrong": report.wrong, "needs_person": report.needing_person}
    print_json({**shown, "conditions": [] if operation is None else operation.pop("conditions"), "operation": operation})


def _print_settings(settings: Settings) -> None:
    print_heading("Settings")
    for key, value in iter_masked_values(settings):
        print_line(f"{key} = {value}")
