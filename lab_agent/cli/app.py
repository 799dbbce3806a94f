"""Assembles all commands, and turns every error into one sentence and an exit code."""

from __future__ import annotations

import sys
import traceback

import typer

from lab_agent import logs
from lab_agent.cli import accounts, adapters, catalogue, check, init, maintenance, mappings, notices, orders, outbox, results
from lab_agent.cli import run as run_command
from lab_agent.cli.context import VersionOption
from lab_agent.cli.output import print_error
from lab_agent.errors import InputError, LabAgentError
from lab_agent.settings.groups import LoggingSettings

app = typer.Typer(
    name="lab-agent",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root_callback(_version: VersionOption = False) -> None:
    """Connects a laboratory to an order exchange service: receives orders, delivers results, loses and duplicates none."""


app.command("run")(run_command.run)
app.command("init")(init.init)
app.command("login")(maintenance.login)
app.command("check")(check.check)
app.command("adapters")(adapters.list_adapters)
app.add_typer(adapters.adapter_app, name="adapter")
app.command("rules")(maintenance.list_rules)
app.add_typer(adapters.schema_app, name="schema")
app.add_typer(orders.app, name="orders")
app.add_typer(results.app, name="results")
app.add_typer(mappings.app, name="mappings")
app.add_typer(outbox.app, name="outbox")
app.add_typer(maintenance.db_app, name="db")
app.add_typer(accounts.user_app, name="user")
app.add_typer(catalogue.catalogue_app, name="catalogue")
app.add_typer(notices.app, name="eta")
app.add_typer(catalogue.preanalytics_app, name="preanalytics")
app.add_typer(accounts.api_token_app, name="api-token")


def run() -> int:
    """Run one command, and return its exit code. Unexpected errors are reported by their location, never with their data."""
    logs.configure(LoggingSettings(level="error"))  # commands print; the daemon configures its own logging
    try:
        app()
    except SystemExit as exc:
        return exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except LabAgentError as exc:
        print_error(str(exc))
        return 2 if isinstance(exc, InputError) else 1
    except BrokenPipeError:
        sys.stderr.close()  # the reader has closed the pipe
    except OSError as exc:
        print_error(f"{exc.filename or 'System error'}: {exc.strerror or type(exc).__name__}")
    except Exception as exc:  # noqa: BLE001 - outermost handler: neither traceback nor data on the screen
        place = traceback.extract_tb(exc.__traceback__)[-1]
        print_error(f"Internal error: {type(exc).__name__} at {place.filename}:{place.lineno}. Please report it.")
    return 1
