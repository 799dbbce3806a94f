"""`lab-agent db …`: the schema of the database, and the keys of what is encrypted in it."""

from __future__ import annotations

import asyncio

import typer

from lab_agent.cli.context import ConfigOption, JsonOption
from lab_agent.cli.output import print_json, print_line
from lab_agent.cli.progress import progress_bar
from lab_agent.errors import StoreError
from lab_agent.settings.introspection import mask_url_password
from lab_agent.settings.root import Settings, load_settings
from lab_agent.store.key_rotation import KeyRotation
from lab_agent.store.key_rotation import rotate_keys as rotate_store_keys
from lab_agent.store.opening import open_store
from lab_agent.store.progress import Tell
from lab_agent.store.schema import upgrade as upgrade_schema

db_app = typer.Typer(help="The database.", no_args_is_help=True)


@db_app.callback()
def db_callback() -> None:
    """The database."""


@db_app.command()
def upgrade(config: ConfigOption = None) -> None:
    """Create the database, or upgrade its schema. May be repeated; no data is lost."""
    settings = load_settings(config, requires_login=False)
    upgrade_schema(settings.store.url)
    print_line(f"{mask_url_password(settings.store.url)} has the current schema.")


@db_app.command("rotate-keys")
def rotate_keys(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Re-encrypt all stored data with the first of `store.encryption_keys`, and say when the older keys can be removed.

    It works in batches while the programs run. It may be interrupted and repeated: data under the newest key is skipped.
    """
    settings = load_settings(config)
    with progress_bar("Encrypting anew", as_json=as_json) as tell:
        done = asyncio.run(_rotate_keys(settings, tell))
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


async def _rotate_keys(settings: Settings, tell: Tell) -> KeyRotation:
    store = open_store(settings.store)
    try:
        return await rotate_store_keys(store, tell)
    finally:
        await store.close()
