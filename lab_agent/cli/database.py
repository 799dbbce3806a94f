"""`lab-agent db …`: the schema of the database, and the keys of what is encrypted in it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import typer

from lab_agent.cli.context import ByOption, ConfigOption, JsonOption
from lab_agent.cli.group_actions import YesOption
from lab_agent.cli.output import print_json, print_line
from lab_agent.cli.progress import progress_bar
from lab_agent.operations.audit_log import record
from lab_agent.settings.groups import StoreSettings
from lab_agent.settings.introspection import mask_url_password
from lab_agent.settings.root import StoreGroups, UpgradeGroups, load_groups
from lab_agent.shared.errors import StoreError
from lab_agent.store.audit_origin import find_origin
from lab_agent.store.audit_records import AuditAction, AuditEntry
from lab_agent.store.engine import sqlite_file
from lab_agent.store.key_rotation import KeyRotation
from lab_agent.store.key_rotation import rotate_keys as rotate_store_keys
from lab_agent.store.missing_database import find_missing_database
from lab_agent.store.opening import build_cipher, open_store
from lab_agent.store.progress import Tell
from lab_agent.store.row_copy import copy_rows
from lab_agent.store.schema import upgrade as upgrade_schema
from lab_agent.store.space import compact, read_space

db_app = typer.Typer(help="The database.", no_args_is_help=True)


@db_app.callback()
def db_callback() -> None:
    """The database."""


@db_app.command()
def upgrade(config: ConfigOption = None) -> None:
    """Create the database, or upgrade its schema. May be repeated, and run on several machines at once; no data is lost.

    Where files are left of a former database, no new one is made in its place.

    Programs of the former version may go on meanwhile where the new schema serves them. Where it does not, nothing is changed as
    long as one of them runs.
    """
    settings = load_groups(UpgradeGroups, config)
    if (missing := find_missing_database(settings)) is not None and missing.remains is not None:
        raise missing.to_error()
    url = settings.store.url
    done, database = upgrade_schema(url), mask_url_password(url)
    if done.before is None:
        file = sqlite_file(url)
        print_line(f"A new, empty database was made: {database if file is None else file.absolute()}")
    elif done.is_newer:
        print_line(f"{database} has schema {done.after} of a newer program, which serves this one ({done.program}) too.")
    else:
        print_line(f"{database} has the current schema.")


@db_app.command("compact")
def compact_database(config: ConfigOption = None, by: ByOption = None, yes: YesOption = False) -> None:
    """Write the database anew without its free room. With SQLite: stop lab-agent and lab-api first.

    A SQLite database made by an older version gives room back by itself from then on. PostgreSQL runs a plain VACUUM meanwhile.
    """
    settings = load_groups(StoreGroups, config).store
    address = mask_url_password(settings.url)
    if not yes and not typer.confirm(f"Write {address} anew?", err=True):
        raise typer.Exit(1)
    compact(settings.url, datetime.now(UTC))
    print_line(f"{address} has {asyncio.run(_note_compacted(settings, by))} bytes.")


async def _note_compacted(settings: StoreSettings, by: str | None) -> int:
    store = open_store(settings, origin=find_origin(by=by))
    try:
        await record(store, AuditEntry(at=datetime.now(UTC), action=AuditAction.DATABASE_COMPACTED))
        return (await store.read(read_space)).size
    finally:
        await store.close()


@db_app.command("rotate-keys")
def rotate_keys(config: ConfigOption = None, by: ByOption = None, as_json: JsonOption = False) -> None:
    """Re-encrypt all stored data with the first of `store.encryption_keys`, and say when the older keys can be removed.

    It works in batches while the programs run. It may be interrupted and repeated: data under the newest key is skipped.
    """
    settings = load_groups(StoreGroups, config).store
    with progress_bar("Encrypting anew", as_json=as_json) as tell:
        done = asyncio.run(_rotate_keys(settings, by, tell))
    if as_json:
        print_json(done)
    else:
        print_line(f"Re-encrypted with the newest key: {done.reencrypted}.")
    if done.unreadable:
        raise StoreError(
            f"{done.unreadable} values cannot be decrypted with any key of `store.encryption_keys` and stay as they are; "
            "add the key that they were encrypted with, and run this again."
        )
    if done.added_meanwhile:
        raise StoreError(
            f"{done.added_meanwhile} values were written with an older key in the meantime: keep it, restart every program with "
            "the newest key as its first, and run this again."
        )
    if not as_json:
        print_line(
            "Nothing that is stored needs an older key. Once every program runs with the newest key as its first, "
            "the others can be removed from `store.encryption_keys`."
        )


@db_app.command("copy")
def copy_database(
    to: Annotated[
        str,
        typer.Option(
            "--to",
            prompt="Address of the PostgreSQL database",
            metavar="URL",
            help="The empty PostgreSQL database, as in `store.url`. Asked for if not given, as it may hold a password.",
        ),
    ],
    config: ConfigOption = None,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a SQLite database to an empty PostgreSQL, and compare every row. Stop lab-agent and lab-api first.

    The former database stays as it is; nothing may work on it any more once the agent works on the new one.
    """
    settings, now = load_groups(StoreGroups, config).store, datetime.now(UTC)
    with progress_bar("Copying", as_json=as_json) as tell:
        copied = copy_rows(settings.url, to, build_cipher(settings), now, tell)
    compact(to, now)  # it also lets PostgreSQL know how much there is
    new = settings.model_copy(update={"url": to})
    asyncio.run(_note(new, by, AuditEntry(at=now, action=AuditAction.DATABASE_COPIED)))
    if as_json:
        print_json(copied)
        return
    for each in copied:
        print_line(f"{each.rows:>12,}  {each.name}")
    print_line(f"{sum(each.rows for each in copied):,} rows are in {mask_url_password(to)}, each compared with its original.")
    print_line("Set `store.url` to it, take the former database away, and start lab-agent and lab-api (docs/postgresql.md).")


async def _note(settings: StoreSettings, by: str | None, entry: AuditEntry) -> None:
    store = open_store(settings, origin=find_origin(by=by))
    try:
        await record(store, entry)
    finally:
        await store.close()


async def _rotate_keys(settings: StoreSettings, by: str | None, tell: Tell) -> KeyRotation:
    store = open_store(settings, origin=find_origin(by=by))
    try:
        done = await rotate_store_keys(store, tell)
        details = {"reencrypted": done.reencrypted, "added_meanwhile": done.added_meanwhile, "unreadable": done.unreadable}
        await record(store, AuditEntry(at=datetime.now(UTC), action=AuditAction.KEYS_ROTATED, details=details))
        return done
    finally:
        await store.close()
