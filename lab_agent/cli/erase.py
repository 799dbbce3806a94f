"""`lab-agent erase`: erases what is stored of one patient, on request; or shows what that is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from lab_agent.cli.context import ByOption, CommandContext, ConfigOption, JsonOption, operator_name, run_with_store
from lab_agent.cli.output import print_error, print_heading, print_json, print_line, print_list
from lab_agent.cli.patient_search import FoundData, find_data
from lab_agent.operations import patient_erasure
from lab_agent.operations.audit_log import record
from lab_agent.orders.job_actions import validate_note
from lab_agent.orders.patient_search import PatientCriteria
from lab_agent.settings.root import Settings
from lab_agent.shared.errors import InputError, LabAgentError, StoreUnreachableError
from lab_agent.shared.ids import OrderKey, RefusedKey, ReportKey
from lab_agent.shared.values import BirthDate, PartialDate
from lab_agent.store.audit_records import AuditAction, AuditEntry
from lab_agent.store.backups import list_backups

_QUESTIONS = ("Name (family and given)", "Birth date (YYYY-MM-DD)", "Identifier (policy, insurance number)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What was erased, and what was not, with the reason."""

    orders: int
    documents: int
    results: int
    refused_messages: int
    not_erased: tuple[str, ...] = ()


def erase(  # noqa: PLR0913, PLR0917 - each is an option of the command
    orders: Annotated[list[str] | None, typer.Argument(metavar="[ORDER]…", help="Keys of orders.")] = None,
    patient: Annotated[
        bool,
        typer.Option(
            "--patient",
            help="All of one patient. Name, birth date and identifier are prompted for, or three lines of standard input: "
            "on a command line everybody could read them.",
        ),
    ] = False,
    refused: Annotated[
        list[str] | None, typer.Option("--refused", metavar="MESSAGE", help="Key of a refused message; may be repeated.")
    ] = None,
    include_open: Annotated[
        bool, typer.Option("--include-open", help="Also orders that are not closed, where nothing of them is being worked on.")
    ] = False,
    note: Annotated[
        str | None, typer.Option("--note", help="On whose request, without naming the patient. Kept encrypted with the audit.")
    ] = None,
    config: ConfigOption = None,
    by: ByOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Erase it. Without this, it is only shown.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Erase the data of one patient: identification, results, documents, raw messages, timelines. Without --yes, show it.

    Keys, states, times and codes stay, so that nothing is done twice. Backups made before keep the data until they are deleted.
    Exit code 1 where something could not be erased.
    """
    if not (orders or patient or refused):
        raise InputError("Name orders, or refused messages with --refused, or a patient with --patient. Nothing was changed.")
    criteria = _ask_for_patient() if patient else None
    written = None if note is None else validate_note(note)

    async def work(context: CommandContext) -> tuple[FoundData, Erased | None]:
        found = await find_data(context, criteria, [OrderKey(each) for each in orders or ()], list(refused or ()))
        if not yes:
            numbers = {"orders": len(found.orders), "refused_messages": len(found.refused_messages)}
            action, who = AuditAction.PATIENT_SEARCHED, operator_name(by)
            await record(context.store, AuditEntry(at=context.now, action=action, by=who, details=numbers, note=written))
            return found, None
        return found, await _erase(context, found, written, include_open=include_open, by=operator_name(by))

    found, erased = run_with_store(config, work)
    if as_json:
        print_json({"found": found, "erased": erased})
    else:
        _print_found(found)
        _print_places(found, run_with_store(config, _backups))
        _print_erased(erased)
    if erased is not None and erased.not_erased:
        raise typer.Exit(1)


def _ask_for_patient() -> PatientCriteria:
    """Raise `InputError` where it is not enough to say who is meant."""
    is_terminal = sys.stdin.isatty()
    name, born, identifier = (
        str(typer.prompt(question, default="", show_default=False, err=True)) if is_terminal else sys.stdin.readline()
        for question in _QUESTIONS
    )
    try:
        born = born.strip()
        whole = len(born) >= len("1961-04-12")
        birth_date: BirthDate | None = date.fromisoformat(born) if whole else PartialDate(born) if born else None
    except ValueError as exc:
        hint = "write it as 1961-04-12, or as 1961 where no more is known of the patient"
        raise InputError(f"The birth date is no date; {hint}. Nothing was changed.") from exc
    criteria = PatientCriteria(name=name.strip(), birth_date=birth_date, identifier=identifier.strip())
    if not criteria.is_enough:
        raise InputError("Give an identifier, or name and birth date: a name alone may be another person's. Nothing was changed.")
    return criteria


async def _erase(context: CommandContext, found: FoundData, note: str | None, *, include_open: bool, by: str) -> Erased:
    """Erase each by itself: one that cannot be erased stops no other."""
    store, now = context.store, context.now
    problems: list[str] = []
    documents = orders = results = messages = 0
    for target in found.orders:
        try:
            documents += await patient_erasure.erase_order(store, target.order, include_open=include_open, by=by, now=now)
            orders += 1
        except StoreUnreachableError:
            raise
        except LabAgentError as exc:
            problems.append(str(exc))
    for key in found.results:
        try:
            await patient_erasure.erase_report(store, ReportKey(key), by=by, now=now)
            results += 1
        except StoreUnreachableError:
            raise
        except LabAgentError as exc:
            problems.append(str(exc))
    for message in found.refused_messages:
        await patient_erasure.erase_refused(store, RefusedKey(message), by=by, now=now)
        messages += 1
    details = {"orders": orders, "results": results, "refused_messages": messages, "not_erased": len(problems)}
    await record(store, AuditEntry(at=now, action=AuditAction.PATIENT_ERASED, by=by, details=details, note=note))
    await store.reclaim_space()
    return Erased(orders=orders, documents=documents, results=results, refused_messages=messages, not_erased=tuple(problems))


def _print_found(found: FoundData) -> None:
    print_heading("Orders")
    rows = [
        {"order": each.order, "state": each.state, "results": each.results, "not_erased_because": each.obstacle}
        for each in found.orders
    ]
    print_list(rows, as_json=False, empty_text="None.")
    for title, keys in (("Results without an order", found.results), ("Refused messages", found.refused_messages)):
        print_heading(title)
        print_list([{"key": each} for each in keys], as_json=False, empty_text="None.")
    if found.unreadable:
        print_error(f"{found.unreadable} values could not be read, and may be about this patient too.")


def _print_places(found: FoundData, backups: Sequence[str]) -> None:
    print_heading("Outside the database")
    for file in found.files:
        print_line(f"file of an adapter: {file}; delete it yourself")
    for line in backups:
        print_line(line)
    print_line("What was sent to the exchange service and to laboratory systems is theirs to erase.")


def _print_erased(erased: Erased | None) -> None:
    if erased is None:
        print_line("Nothing was changed; --yes erases it.")
        return
    print_line(
        f"Erased: {erased.orders} orders with {erased.documents} documents, {erased.results} other results, "
        f"{erased.refused_messages} refused messages."
    )
    for problem in erased.not_erased:
        print_error(problem)


async def _backups(context: CommandContext) -> list[str]:
    return describe_backups(context.settings)


def describe_backups(settings: Settings) -> list[str]:
    """Where copies of the data are that this command does not reach, and when they go."""
    folder: Path | None = settings.backup.folder
    general = "Backups made before hold the data until they are deleted."
    if folder is None:
        return [general]
    try:
        backups = list_backups(folder)
    except LabAgentError:
        return [general]
    kept = f"the newest {settings.backup.keep} for {settings.backup.keep_days} days at most"
    return [f"{general} In {folder} there are {len(backups)}; {kept}, as `lab-agent backup` deletes them."]
