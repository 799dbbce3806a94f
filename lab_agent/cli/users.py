"""`lab-agent user …`: who may sign in to the status page."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lab_agent.accounts import Account, Accounts, Role
from lab_agent.cli.opened import Opened, with_store
from lab_agent.cli.options import AsJson, Config
from lab_agent.cli.shown import Row, say, show_json, show_list
from lab_agent.crypto import Passwords
from lab_agent.errors import StoreError

app = typer.Typer(help="Users of the status page.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]


@app.command()
def add(
    name: Name,
    config: Config = None,
    role: Annotated[
        Role, typer.Option("--role", help="viewer looks; operator also retries and releases; admin does all.")
    ] = Role.VIEWER,
    as_json: AsJson = False,
) -> None:
    """Add a user. The password is asked for, or read from standard input where that is not a terminal."""
    password = _password()

    async def work(opened: Opened) -> Account:
        return await Accounts(opened.store, Passwords()).add(name, password, role, now=opened.now)

    account = with_store(config, work)
    if as_json:
        show_json(account)
    else:
        say(f"{account.name} may sign in as {account.role.value}.")


@app.command("list")
def list_(config: Config = None, as_json: AsJson = False) -> None:
    """List the users."""

    async def work(opened: Opened) -> tuple[Account, ...]:
        return await Accounts(opened.store, Passwords()).list()

    accounts = with_store(config, work)
    nothing = "No users yet; `lab-agent user add NAME --role admin` makes the first."
    show_list([_row(account) for account in accounts], as_json=as_json, nothing=nothing, full=accounts)


@app.command()
def remove(name: Name, config: Config = None) -> None:
    """Remove a user; open sessions of that user end."""

    async def work(opened: Opened) -> bool:
        return await Accounts(opened.store, Passwords()).remove(name)

    if not with_store(config, work):
        raise StoreError(f"There is no user {name}; `lab-agent user list` shows them.")
    say(f"{name} is removed.")


def _password() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    return sys.stdin.readline().rstrip("\r\n")


def _row(account: Account) -> Row:
    return {"name": account.name, "role": account.role, "since": account.created_at}
