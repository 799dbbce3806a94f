"""`lab-agent schema …`: what adapters receive and deliver, as JSON Schemas."""

from __future__ import annotations

import typer

from lab_agent.cli.output import print_json
from lab_agent.lis.serialization import message_schema, order_schema

schema_app = typer.Typer(help="JSON Schemas of orders and results.", no_args_is_help=True)


@schema_app.command()
def order() -> None:
    """Print the JSON Schema of an order as adapters receive it."""
    print_json(order_schema())


@schema_app.command()
def result() -> None:
    """Print the JSON Schema of the messages that adapters deliver: reports, rejections and accession updates."""
    print_json(message_schema())
