"""`lab-agent backup`, `restore`, and `restored …`: copies of the database, and what follows when one was put back."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field

from lab_agent.cli.columns import choose_columns
from lab_agent.cli.context import (
    ByOption,
    ColumnsOption,
    CommandContext,
    ConfigOption,
    JsonOption,
    WideOption,
    operator_name,
    run_with_store,
)
from lab_agent.cli.group_actions import YesOption
from lab_agent.cli.output import print_fields, print_json, print_line, print_list
from lab_agent.cli.progress import progress_bar
from lab_agent.operations.agent import AgentLimits
from lab_agent.operations.audit_log import record
from lab_agent.orders.restored_store import advance_number, load_restoration, note_restoration, read_number, release_restoration
from lab_agent.settings.api import ApiSettings
from lab_agent.settings.groups import MonitoringSettings, StoreSettings, WorkerSettings
from lab_agent.settings.introspection import mask_url_password
from lab_agent.settings.root import BackupGroups, StoreGroups, load_groups
from lab_agent.settings.sources import environment_of_others
from lab_agent.shared.errors import InputError, LabAgentError
from lab_agent.store.audit_mark import accept_restore
from lab_agent.store.audit_origin import find_origin
from lab_agent.store.audit_records import AuditAction, AuditEntry, AuditValue
from lab_agent.store.backups import Backup, backup_time, list_backups, make_backup, prune_backups, restore_backup
from lab_agent.store.opening import open_store
from lab_agent.store.progress import Tell
from lab_agent.store.restoration import SIGN_WORDS, MarkedNumber, Restoration, RestoreSign, find_sign
from lab_agent.store.schema import upgrade
from lab_agent.store.store_mark import open_mark
from lab_agent.store.unit_of_work import Store, UnitOfWork

restored_app = typer.Typer(help="A database that was restored: what was found, and letting work go on.", no_args_is_help=True)
FolderOption = Annotated[Path | None, typer.Option("--folder", metavar="PATH", help="Default: `backup.folder`.")]
_STANDARD_ERROR = 2
_COLUMNS = ("made_at", "file", "bytes", "encrypted")
_LABELS_FORGOTTEN = (
    "Labels that were issued since the backup would be issued again: `api.label_mark` is not set. Give lab-api a pool of other "
    "numbers before you start it."
)
_NO_FOLDER = "There is no folder for backups: set `backup.folder`, or name one with --folder."


class _RestoreGroups(StoreGroups):
    """What `lab-agent restore` reads: also when another agent counts as gone, and whether labels may be issued twice."""

    worker: WorkerSettings = Field(default_factory=WorkerSettings)
    monitoring: MonitoringSettings = Field(default_factory=MonitoringSettings)
    api: ApiSettings = Field(default_factory=ApiSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupDone:
    """What `lab-agent backup` did."""

    backup: Backup
    deleted: tuple[Backup, ...]


def backup(
    folder: FolderOption = None,
    config: ConfigOption = None,
    show: Annotated[bool, typer.Option("--list", help="List the backups that are there, and make none.")] = False,
    columns: ColumnsOption = None,
    wide: WideOption = False,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the database while the programs run, read the copy whole, and delete what is older than is kept.

    Then the command of `backup.after` is run, if there is one.

    The encryption keys are not in it: keep a copy of them elsewhere.
    """
    chosen = choose_columns(_COLUMNS, columns, wide=wide)
    settings = load_groups(BackupGroups, config)
    target = folder or settings.backup.folder
    if target is None:
        raise InputError(_NO_FOLDER)
    if show:
        rows = [
            {"made_at": each.made_at, "bytes": each.size, "encrypted": each.is_encrypted, "file": each.path}
            for each in list_backups(target)
        ]
        print_list(rows, as_json=as_json, columns=chosen, empty_text=f"There is no backup in {target}.")
        return
    with progress_bar("Backing up", as_json=as_json) as tell:
        done = asyncio.run(_backup(settings, target, by, tell))
    if as_json:
        print_json(done)
    else:
        print_line(f"{done.backup.path}: {done.backup.size:,} bytes, read whole and found in order.")
        if done.deleted:
            print_line(f"Deleted: {', '.join(each.path.name for each in done.deleted)}.")
    if settings.backup.after:
        _run_after(settings.backup.after, done.backup.path)


def _run_after(command: Sequence[str], file: Path) -> None:
    """Run the command of the settings; what it prints goes to standard error. Raises `LabAgentError` if it fails."""
    environment = environment_of_others(os.environ) | {"BACKUP_FILE": str(file.absolute())}
    try:
        done = subprocess.run(  # noqa: S603 - what the settings name, and no shell
            command, env=environment, stdin=subprocess.DEVNULL, stdout=_STANDARD_ERROR, check=False
        )
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else exc
        raise LabAgentError(f"The backup was made; `backup.after` cannot be started: {command[0]}: {why}.") from exc
    if done.returncode:
        raise LabAgentError(f"The backup was made; `backup.after` failed: {command[0]} ended with exit code {done.returncode}.")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")],
    config: ConfigOption = None,
    by: ByOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Put a backup in the place of the database, once it was read whole. Stop lab-agent and lab-api first.

    A SQLite database that was there stays beside it. The agent then starts held: it compares its open orders with the exchange
    service, and tells laboratory systems nothing until `lab-agent restored release`.
    """
    settings = load_groups(_RestoreGroups, config)
    address = mask_url_password(settings.store.url)
    if not yes and not typer.confirm(f"Put {file} in the place of the database {address}?", err=True):
        raise typer.Exit(1)
    now, noted = datetime.now(UTC), list[Restoration]()

    def prepare(url: str) -> None:
        """So that no agent ever finds a backup there that does not say what it is."""
        upgrade(url)
        noted.append(asyncio.run(_note_restored(settings.store, url, now, backup_time(file.name), by)))

    stale_after = AgentLimits.of(settings.monitoring, settings.worker).stale_after
    with progress_bar("Restoring", as_json=as_json) as tell:
        done = restore_backup(settings.store, file, now, stale_after=stale_after, prepare=prepare, tell=tell)
    (restoration,) = noted
    if as_json:
        print_json({"restored": done, "restoration": restoration})
        return
    print_line(f"{address} is the backup {file}.")
    if done.replaced is not None:
        print_line(f"The database that was there is {done.replaced}; delete it when nothing of it is needed any more.")
    if settings.api.pools and settings.api.label_mark is None:
        print_line(_LABELS_FORGOTTEN)
    print_line("Start lab-agent and lab-api. `lab-agent restored show` says how far the agent is, and docs/restore.md the rest.")


@restored_app.callback()
def restored_callback() -> None:
    """A database that was restored."""


@restored_app.command()
def show(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show what was found since the database was restored. Exit code 1 while it waits for a decision."""

    async def work(context: CommandContext) -> tuple[Restoration | None, dict[str, Any]]:
        restored = await context.store.run_read_only(load_restoration)
        return restored, {} if restored is None else await _describe(context, restored)

    restored, fields = run_with_store(config, work)
    if restored is None:
        print_json(None) if as_json else print_line("The database was not restored, as far as is known.")
        return
    print_fields(fields, as_json=as_json)
    raise typer.Exit(1 if restored.is_open else 0)


@restored_app.command()
def release(
    config: ConfigOption = None,
    by: ByOption = None,
    yes: YesOption = False,
) -> None:
    """Let work go on. Each handover asks its laboratory system first whether it has the order."""

    async def work(context: CommandContext) -> None:
        if not yes:
            restored = await context.store.run_read_only(load_restoration)
            if restored is not None and restored.is_open:
                print_fields(await _describe(context, restored), as_json=False)
                await asyncio.to_thread(typer.confirm, "Let work go on?", abort=True, err=True)

        def write(uow: UnitOfWork) -> None:
            release_restoration(uow, context.now, operator_name(by))

        await context.store.transact(write)

    run_with_store(config, work)
    print_line("Released. Handovers that nobody can verify wait for you: `lab-agent outbox list`.")


async def _backup(settings: BackupGroups, folder: Path, by: str | None, tell: Tell) -> BackupDone:
    """Make a backup; then the database is advanced, so that it is noticed where the backup is put back."""
    now = datetime.now(UTC)
    store = open_store(settings.store, origin=find_origin(by=by))
    try:
        encrypt = settings.backup.encrypt
        made = await asyncio.to_thread(make_backup, settings.store, folder, now, encrypt=encrypt, tell=tell)
        details = {"encrypted": "yes" if made.is_encrypted else "no", "bytes": made.size}
        await record(store, AuditEntry(at=now, action=AuditAction.BACKUP_MADE, details=details))
        await _advance(settings.store, store, now)
        deleted = await asyncio.to_thread(prune_backups, settings.backup, folder, now)
    finally:
        await store.close()
    return BackupDone(backup=made, deleted=deleted)


async def _advance(settings: StoreSettings, store: Store, now: datetime) -> None:
    mark = open_mark(settings)
    if mark is None:
        return
    known = await asyncio.to_thread(mark.read)

    def advance(uow: UnitOfWork) -> MarkedNumber | None:
        if find_sign(known, read_number(uow)) is not None:
            return None  # it tells of a restore that the agent has not noticed yet, and must go on to
        return advance_number(uow, now)

    if (reached := await store.transact(advance)) is not None:
        await asyncio.to_thread(mark.write, reached)


async def _note_restored(
    settings: StoreSettings, url: str, now: datetime, made_at: datetime | None, by: str | None
) -> Restoration:
    """Note it in the database at `url`, which is the one of the settings, or is about to be put in its place."""
    store = open_store(settings.model_copy(update={"url": url}), origin=find_origin(by=by), marked_as=settings)
    ends_at = await asyncio.to_thread(accept_restore, settings)
    details: dict[str, AuditValue] = {"audit_known_to": ends_at}
    if made_at is not None:
        details["backup_of"] = made_at.isoformat()

    def note(uow: UnitOfWork) -> Restoration:
        restored = note_restoration(uow, RestoreSign.COMMAND, now)
        uow.audit.add(AuditEntry(at=now, action=AuditAction.BACKUP_RESTORED, details=details))
        return restored

    try:
        return await store.transact(note)
    finally:
        await store.close()


async def _describe(context: CommandContext, restored: Restoration) -> dict[str, Any]:
    found = await context.queries.restored_numbers(since=restored.noticed_at)
    waiting = await context.queries.affected_numbers()
    return {
        "restored": SIGN_WORDS[restored.sign],
        "noticed_at": restored.noticed_at,
        "known_until": restored.known_until,
        "compared_with_the_service": restored.reconciled_at or "not yet",
        "orders_not_compared": restored.not_compared,
        "orders_found_completed": found.orders_completed_before,
        "orders_found_withdrawn": found.orders_withdrawn,
        "cancellations_to_tell": found.cancellations,
        "orders_to_hand_over": sum(waiting.orders_to_hand_over.values()),
        "lines_without_a_result": sum(waiting.waiting_lines.values()),
        "released_at": restored.released_at,
        "released_by": restored.released_by,
    }
