"""`lab-agent user …`: who may sign in to the status page."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lab_agent.accounts import Account, Accounts, Role
from lab_agent.cli.opened import CommandContext, run_with_store
from lab_agent.cli.options import ConfigOption, JsonOption
from lab_agent.cli.shown import Row, print_json, print_line, print_list
from lab_agent.crypto import Passwords
from lab_agent.errors import StoreError

user_app = typer.Typer(help="Users of the status page.", no_args_is_help=True)
UserNameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]


@user_app.command()
def add(
    name: UserNameArgument,
    config: ConfigOption = None,
    role: Annotated[
        Role, typer.Option("--role", help="viewer looks; operator also retries and releases; admin does all.")
    ] = Role.VIEWER,
    as_json: JsonOption = False,
) -> None:
    """Add a user. The password is asked for, or read from standard input where that is not a terminal."""
    password = _read_password()

    async def work(context: CommandContext) -> Account:
        return await Accounts(context.store, Passwords()).add(name, password, role, now=context.now)

    account = run_with_store(config, work)
    if as_json:
        print_json(account)
    else:
        print_line(f"{account.name} may sign in as {account.role.value}.")


@user_app.command("list")
def list_users(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the users."""

    async def work(context: CommandContext) -> tuple[Account, ...]:
        return await Accounts(context.store, Passwords()).list()

    accounts = run_with_store(config, work)
    nothing = "No users yet; `lab-agent user add NAME --role admin` makes the first."
    print_list([_user_row(account) for account in accounts], as_json=as_json, empty_text=nothing, json_rows=accounts)


@user_app.command()
def remove(name: UserNameArgument, config: ConfigOption = None) -> None:
    """Remove a user; open sessions of that user end."""

    async def work(context: CommandContext) -> bool:
        return await Accounts(context.store, Passwords()).remove(name)

    if not run_with_store(config, work):
        raise StoreError(f"There is no user {name}; `lab-agent user list` shows them.")
    print_line(f"{name} is removed.")


def _read_password() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    return sys.stdin.readline().rstrip("\r\n")


def _user_row(account: Account) -> Row:
    return {"name": account.name, "role": account.role, "since": account.created_at}
