"""Assembles all commands, and turns every error into one sentence and an exit code."""

from __future__ import annotations

import sys
import traceback
from importlib.metadata import version
from typing import Annotated

import typer

from lab_agent.cli import command_log
from lab_agent.cli.lazy_commands import ALL_OPTION, CommandSource, lazy_group, prepare_completion
from lab_agent.cli.output import print_error
from lab_agent.shared.errors import InputError, LabAgentError, StoreUnreachableError

_DAILY = {
    "run": CommandSource(
        "lab_agent.cli.run:run",
        "Fetch orders, submit them to the LIS and deliver results, until SIGTERM. SIGHUP reloads catalogue and maps.",
    ),
    "init": CommandSource(
        "lab_agent.cli.init:init",
        "Write a settings file, and print the sheet for the registration at the exchange service. Prompts for missing answers.",
    ),
    "check": CommandSource(
        "lab_agent.cli.check:check",
        "Check settings, connections and operation. Exit code 1 if a person is needed, 2 if something is critical.",
    ),
    "status": CommandSource(
        "lab_agent.cli.status:status",
        "Show how operation is: what needs a person, what waits, what was done.",
    ),
    "login": CommandSource(
        "lab_agent.cli.login:login",
        "Sign in at the exchange service with a browser: open the printed address; the callback is received here or pasted.",
    ),
    "orders": CommandSource("lab_agent.cli.orders:app", "Orders and their state."),
    "results": CommandSource("lab_agent.cli.results:app", "Results that laboratory systems have reported."),
    "outbox": CommandSource("lab_agent.cli.outbox:app", "The outbox: jobs to be done at the service and the laboratory system."),
    "alert": CommandSource("lab_agent.cli.alerts:app", "One alert whole, and whether notifications arrive."),
    "adapter": CommandSource(
        "lab_agent.cli.adapter_group:adapter_app",
        "Laboratory systems: list them, try captured messages, pause one, create your own adapter.",
    ),
    "mappings": CommandSource(
        "lab_agent.cli.mappings:app", "Mapping tables from the laboratory's codes, units and answers to the exchange's."
    ),
    "catalogue": CommandSource(
        "lab_agent.cli.catalogue:catalogue_app", "The laboratory's catalogue: tests, tubes, questions, turnaround times."
    ),
    "eta": CommandSource("lab_agent.cli.notices:app", "Tests that are temporarily stopped or delayed."),
    "user": CommandSource("lab_agent.cli.accounts:user_app", "Users of the status page."),
    "backup": CommandSource(
        "lab_agent.cli.backup:backup",
        "Copy the database while the programs run, read the copy whole, and delete what is older than is kept.",
    ),
}
"""What `--help` lists."""
_OTHERS = {
    "files": CommandSource(
        "lab_agent.cli.files:files",
        "Print the folder with the documentation (docs), example settings and tables (config), and systemd units (systemd).",
    ),
    "rehearse": CommandSource(
        "lab_agent.cli.rehearse:rehearse",
        "Run a day of made-up orders through settings, catalogue, rules, mappings and adapters; nothing leaves the machine.",
    ),
    "rules": CommandSource(
        "lab_agent.cli.rules:list_rules",
        "List the rules for orders: severity, allowed severities, source in the interface, and message.",
    ),
    "schema": CommandSource("lab_agent.cli.schemas:schema_app", "JSON Schemas of orders and results."),
    "restore": CommandSource(
        "lab_agent.cli.backup:restore",
        "Put a backup in the place of the database, once it was read whole. Stop lab-agent and lab-api first.",
    ),
    "restored": CommandSource(
        "lab_agent.cli.backup:restored_app", "A database that was restored: what was found, and letting work go on."
    ),
    "db": CommandSource("lab_agent.cli.database:db_app", "The database."),
    "preanalytics": CommandSource("lab_agent.cli.catalogue:preanalytics_app", "The tubes of a basket."),
    "support-bundle": CommandSource(
        "lab_agent.cli.support_bundle:support_bundle",
        "Write settings, versions, conditions, counts and the end of the log to one file, without patient data or secrets.",
    ),
    "completion": CommandSource("lab_agent.cli.completion:completion", "Print the script for completion in bash, zsh or fish."),
    "purge": CommandSource(
        "lab_agent.cli.purge:purge",
        "Remove what has been kept long enough (`retention`), and give its room back to the disk. --dry-run only counts it.",
    ),
    "erase": CommandSource(
        "lab_agent.cli.erase:erase",
        "Erase the data of one patient: identification, results, documents, raw messages, timelines. Without --yes, show it.",
    ),
    "audit": CommandSource(
        "lab_agent.cli.audit:audit_app", "Who did what, and when: the audit, which shows whether anybody has changed it."
    ),
    "api-token": CommandSource("lab_agent.cli.accounts:api_token_app", "Access tokens of the laboratory's API."),
}
"""What `--help --all` lists besides."""

app = typer.Typer(
    name="lab-agent",
    cls=lazy_group({**_DAILY, **_OTHERS}, brief=_DAILY),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"lab-agent --help {ALL_OPTION} lists every command.",
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(version("lab-agent"))
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
]
AllOption = Annotated[bool, typer.Option(ALL_OPTION, help="With --help: list every command.")]


@app.callback()
def _root_callback(_version: VersionOption = False, _every: AllOption = False) -> None:
    """Connects a laboratory to an order exchange service: receives orders, delivers results, loses and duplicates none."""


def _explain_error(error: LabAgentError) -> str:
    """What went wrong; where it is the database, also what to do about it."""
    if not isinstance(error, StoreUnreachableError) or error.fault is None:
        return str(error)
    from lab_agent.store.store_health import explain_error  # noqa: PLC0415 - only where a command has failed

    return explain_error(error)


def run() -> int:
    """Run one command, and return its exit code. Unexpected errors are reported by their location, never with their data."""
    command_log.prepare()
    prepare_completion()
    try:
        app()
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except LabAgentError as exc:
        print_error(_explain_error(exc))
        return 2 if isinstance(exc, InputError) else 1
    except BrokenPipeError:
        sys.stderr.close()  # the reader has closed the pipe
    except OSError as exc:
        print_error(f"{exc.filename or 'System error'}: {exc.strerror or type(exc).__name__}")
    except Exception as exc:  # noqa: BLE001 - outermost handler: neither traceback nor data on the screen
        place = traceback.extract_tb(exc.__traceback__)[-1]
        print_error(f"Internal error: {type(exc).__name__} at {place.filename}:{place.lineno}. Please report it.")
    return 1
