"""`lab-agent audit …`: who did what; listed, exported with its hashes, and verified."""

from __future__ import annotations

import asyncio
import csv
import json
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TextIO, TypeVar

import typer

from lab_agent.cli.columns import choose_columns
from lab_agent.cli.context import ByOption, ColumnsOption, ConfigOption, JsonOption, LimitOption, OffsetOption, WideOption
from lab_agent.cli.output import Row, print_fields, print_json, print_line, print_list
from lab_agent.operations.audit_log import record
from lab_agent.settings.groups import StoreSettings
from lab_agent.settings.root import StoreGroups, load_groups
from lab_agent.shared.atomic_file import temporary_file
from lab_agent.shared.errors import InputError, StoreError
from lab_agent.store.audit import read_notes
from lab_agent.store.audit_mark import AuditMark
from lab_agent.store.audit_origin import find_origin
from lab_agent.store.audit_records import AuditAction, AuditEntry, AuditRecord
from lab_agent.store.audit_verification import (
    BREAK_WORDS,
    AuditFilter,
    AuditVerdict,
    iterate_records,
    list_records,
    verify_audit,
)
from lab_agent.store.opening import build_cipher, open_store
from lab_agent.store.unit_of_work import Store

T = TypeVar("T")

audit_app = typer.Typer(
    help="Who did what, and when: the audit, which shows whether anybody has changed it.", no_args_is_help=True
)
_COLUMNS = ("at", "actor", "action", "subject", "details", "channel", "number", "origin", "note")
_EXPORTED = ("number", "at", "action", "channel", "actor", "origin", "subject", "details", "note_digest", "hash")
SinceOption = Annotated[
    datetime | None, typer.Option("--since", metavar="TIME", help="Only from this time on (UTC), as in 2026-11-20T08:00.")
]
UntilOption = Annotated[datetime | None, typer.Option("--until", metavar="TIME", help="Only before this time (UTC).")]
ActorOption = Annotated[str | None, typer.Option("--actor", metavar="NAME", help="Only what this person, or program, did.")]
ActionOption = Annotated[AuditAction | None, typer.Option("--action", help="Only this action.")]
SubjectOption = Annotated[
    str | None, typer.Option("--subject", metavar="KEY", help="Only about this order, result, message, user, rule or test.")
]


class ExportFormat(StrEnum):
    """How an export is written."""

    CSV = "csv"
    JSONL = "jsonl"


@audit_app.command("list")
def list_audit(  # noqa: PLR0913, PLR0917 - each is an option of the command
    config: ConfigOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    actor: ActorOption = None,
    action: ActionOption = None,
    subject: SubjectOption = None,
    notes: Annotated[
        bool, typer.Option("--notes", help="Also what people wrote, as far as it was not erased. It may name a patient.")
    ] = False,
    limit: LimitOption = 50,
    offset: OffsetOption = 0,
    by: ByOption = None,
    columns: ColumnsOption = None,
    wide: WideOption = False,
    as_json: JsonOption = False,
) -> None:
    """List the records, newest first."""
    chosen = choose_columns(_COLUMNS if notes else _COLUMNS[:-1], columns, wide=wide)
    wanted = _filter(since, until, actor, action, subject)
    settings = load_groups(StoreGroups, config).store

    async def work(store: Store) -> list[Row]:
        found = await store.read(lambda connection: list_records(connection, wanted, limit=limit, offset=offset))
        if not notes:
            return [_row(each) for each in found]
        cipher, numbers = build_cipher(settings), [each.number for each in found]
        await record(store, AuditEntry(at=datetime.now(UTC), action=AuditAction.AUDIT_NOTES_SHOWN))
        written = await store.read(lambda connection: read_notes(connection, cipher, numbers))
        return [{**_row(each), "note": written.get(each.number)} for each in found]

    rows = _run(settings, work, by)
    print_list(rows, as_json=as_json, columns=chosen, empty_text="Nothing was recorded.")


@audit_app.command()
def export(  # noqa: PLR0913, PLR0917 - each is an option of the command
    config: ConfigOption = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="File to write; it must not exist yet. Default: standard output.")
    ] = None,
    as_format: Annotated[ExportFormat, typer.Option("--format", help="csv, or a JSON object a line.")] = ExportFormat.JSONL,
    since: SinceOption = None,
    until: UntilOption = None,
    actor: ActorOption = None,
    action: ActionOption = None,
    subject: SubjectOption = None,
    by: ByOption = None,
) -> None:
    """Write the records, oldest first, each with its hash. That it was exported is recorded."""
    if to is not None and to.exists():
        raise InputError(f"{to} exists already; name another file with --to.")
    wanted = _filter(since, until, actor, action, subject)
    settings = load_groups(StoreGroups, config).store

    async def work(store: Store) -> int:
        await record(store, AuditEntry(at=datetime.now(UTC), action=AuditAction.AUDIT_EXPORTED))
        return await store.read(lambda connection: _write_export(iterate_records(connection, wanted), to, as_format))

    written = _run(settings, work, by)
    if to is not None:
        print_line(f"{to} was written: {written} records.")


@audit_app.command()
def verify(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Read the whole audit, and say the first record that was changed, is missing or was cut off. Exit code 1 if one was."""
    settings = load_groups(StoreGroups, config).store
    verdict = _run(settings, lambda store: verify_store(store, settings))
    if as_json:
        print_json(verdict)
    elif verdict.broken is None:
        print_fields(_verdict_fields(verdict), as_json=False)
    if verdict.broken is None:
        return
    if not as_json:
        print_line(f"whole: {verdict.records} records, from {verdict.first} on")
    where = "" if verdict.at_record is None else f" (record {verdict.at_record})"
    raise StoreError(f"The audit is broken{where}: {BREAK_WORDS[verdict.broken]}.")


async def verify_store(store: Store, settings: StoreSettings) -> AuditVerdict:
    """Verify the audit of a store against its mark, which is read first: the audit may only be further."""
    cipher, mark = build_cipher(settings), await asyncio.to_thread(_read_mark, store)
    return await store.read(lambda connection: verify_audit(connection, cipher, mark))


def _read_mark(store: Store) -> AuditMark | None:
    return None if store.audit_mark is None else store.audit_mark.read()


def _run(settings: StoreSettings, work: Callable[[Store], Awaitable[T]], by: str | None = None) -> T:
    async def whole() -> T:
        store = open_store(settings, origin=find_origin(by=by))
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(whole())


def _filter(
    since: datetime | None, until: datetime | None, actor: str | None, action: AuditAction | None, subject: str | None
) -> AuditFilter:
    return AuditFilter(since=_utc(since), until=_utc(until), actor=actor, action=action, subject=subject)


def _utc(time: datetime | None) -> datetime | None:
    return None if time is None else time.replace(tzinfo=UTC)


def _row(found: AuditRecord) -> Row:
    return {
        "number": found.number,
        "at": found.at,
        "actor": found.actor,
        "action": found.action,
        "subject": found.subject or None,
        "details": None if found.details == "{}" else found.details,
        "channel": found.channel,
        "origin": found.origin or None,
    }


def _write_export(records: Iterable[AuditRecord], to: Path | None, as_format: ExportFormat) -> int:
    if to is None:
        return _write_records(records, sys.stdout, as_format)
    try:
        with temporary_file(to, b"") as temporary:
            with temporary.open("w", newline="", encoding="utf-8") as opened:
                written = _write_records(records, opened, as_format)
            temporary.rename(to)
    except OSError as exc:
        raise InputError(f"{to} cannot be written: {exc.strerror}.") from exc
    return written


def _write_records(records: Iterable[AuditRecord], to: TextIO, as_format: ExportFormat) -> int:
    table = csv.writer(to)
    if as_format is ExportFormat.CSV:
        table.writerow(_EXPORTED)
    number = 0
    for number, each in enumerate(records, 1):  # noqa: B007 - it is the number of them in the end
        values = asdict(each) | {"at": each.at.isoformat(timespec="microseconds")}
        if as_format is ExportFormat.CSV:
            table.writerow([_cell(values[name]) for name in _EXPORTED])
        else:
            to.write(json.dumps({name: values[name] for name in _EXPORTED}, ensure_ascii=False) + "\n")
    return number


def _cell(value: object) -> object:
    """A text that a spreadsheet would take for a formula gets an apostrophe in front."""
    return f"'{value}" if isinstance(value, str) and value[:1] in {"=", "+", "-", "@"} else value


def _verdict_fields(verdict: AuditVerdict) -> Row:
    return {
        "audit": "whole",
        "records": verdict.records,
        "from": verdict.first,
        "to": verdict.last,
        "notes_erased": verdict.erased_notes,
        "compared_with_mark": verdict.is_marked,
    }
