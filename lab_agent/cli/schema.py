"""`lab-agent schema …`: what laboratory systems are given and what they give, as JSON Schema."""

from __future__ import annotations

import typer

from lab_agent.cli.shown import print_json
from lab_agent.codec import message_schema, order_schema

schema_app = typer.Typer(help="JSON Schemas of what goes to a laboratory system and comes from it.", no_args_is_help=True)


@schema_app.command()
def order() -> None:
    """Print the JSON Schema of an order, as an adapter gets it."""
    print_json(order_schema())


@schema_app.command()
def result() -> None:
    """Print the JSON Schema of a result or a refusal, as an adapter gives it."""
    print_json(message_schema())
