"""`lab-agent api-token …` and `lab-agent user …`: who may call the laboratory's API, and who may sign in to the status page."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer

from lab_agent.catalogue.records import ApiToken
from lab_agent.cli.columns import choose_columns
from lab_agent.cli.context import ByOption, ColumnsOption, CommandContext, ConfigOption, JsonOption, WideOption, run_with_store
from lab_agent.cli.output import Row, print_json, print_line, print_list
from lab_agent.operations.accounts import Account, Accounts, ApiClients, Role, generate_password
from lab_agent.shared.errors import StoreError
from lab_agent.store.crypto import Passwords

api_token_app = typer.Typer(help="Access tokens of the laboratory's API.", no_args_is_help=True)


@api_token_app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the client; several tokens may share it.")],
    config: ConfigOption = None,
    contract: Annotated[
        list[str] | None, typer.Option("--contract", help="Contract that the client may see; may be repeated. Default: all.")
    ] = None,
    days: Annotated[
        int | None, typer.Option("--days", min=1, max=36500, help="Days until the token expires. Default: never.")
    ] = None,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a token. It is shown only once; only its hash is stored.

    The client sends it as a bearer token, as the password of NAME with HTTP Basic, or (with `api.oauth`) requests short-lived
    tokens with NAME as client id and the token as client secret. It becomes valid within seconds, without a restart.
    """

    async def work(context: CommandContext) -> tuple[ApiToken, str]:
        expires_at = None if days is None else context.now + timedelta(days=days)
        return await ApiClients(context.store).create(
            name, tuple(contract) if contract else None, now=context.now, expires_at=expires_at
        )

    made, token = run_with_store(config, work, by)
    if as_json:
        print_json({"id": made.id, "name": made.name, "token": token, "contracts": made.contracts, "expires_at": made.expires_at})
        return
    print_line(f"{made.name} ({made.id}) may see {', '.join(made.contracts) if made.contracts else 'every contract'}.")
    print_line(f"token: {token}")


_TOKEN_COLUMNS = ("id", "name", "valid", "contracts", "until", "since")


@api_token_app.command("list")
def list_tokens(
    config: ConfigOption = None, columns: ColumnsOption = None, wide: WideOption = False, as_json: JsonOption = False
) -> None:
    """List the tokens, without their secrets."""
    chosen = choose_columns(_TOKEN_COLUMNS, columns, wide=wide)

    async def work(context: CommandContext) -> list[Row]:
        return [_token_row(each, valid=each.is_valid(context.now)) for each in await ApiClients(context.store).list()]

    rows = run_with_store(config, work)
    print_list(
        rows, as_json=as_json, columns=chosen, empty_text="No tokens yet; create one with `lab-agent api-token create NAME`."
    )


@api_token_app.command()
def revoke(
    which: Annotated[str, typer.Argument(metavar="TOKEN", help="Id of a token, or a name for all its tokens.")],
    config: ConfigOption = None,
    by: ByOption = None,
) -> None:
    """Revoke a token. It becomes invalid within seconds, as do short-lived tokens requested with it."""

    async def work(context: CommandContext) -> int:
        return await ApiClients(context.store).revoke(which, now=context.now)

    revoked = run_with_store(config, work, by)
    if not revoked:
        raise StoreError(f"No valid token {which}; `lab-agent api-token list` lists them.")
    print_line(f"{revoked} token{'s' if revoked > 1 else ''} of {which} revoked.")


def _token_row(token: ApiToken, *, valid: bool) -> Row:
    return {
        "id": token.id,
        "name": token.name,
        "valid": valid,
        "contracts": "(all)" if token.contracts is None else ", ".join(token.contracts),
        "since": token.created_at,
        "until": token.revoked_at or token.expires_at,
    }


user_app = typer.Typer(help="Users of the status page.", no_args_is_help=True)
UserNameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]
GenerateOption = Annotated[bool, typer.Option("--generate", help="Make the password, and show it once.")]


@user_app.command()
def add(
    name: UserNameArgument,
    config: ConfigOption = None,
    role: Annotated[
        Role, typer.Option("--role", help="viewer may look; operator may also retry and release; admin may do everything.")
    ] = Role.VIEWER,
    generate: GenerateOption = False,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a user. The password is prompted for, or read from standard input if that is not a terminal.

    With --generate it is made and shown once; whoever signs in with it has to choose another one first.
    """
    password = generate_password() if generate else _read_password()

    async def work(context: CommandContext) -> Account:
        accounts = Accounts(context.store, Passwords())
        return await accounts.add(name, password, role, now=context.now, must_change_password=generate)

    account = run_with_store(config, work, by)
    if as_json:
        print_json({**asdict(account), **({"password": password} if generate else {})})
        return
    print_line(f"{account.name} may sign in as {account.role.value}.")
    if generate:
        print_line(f"password: {password}")


@user_app.command()
def password(name: UserNameArgument, config: ConfigOption = None, generate: GenerateOption = False, by: ByOption = None) -> None:
    """Set a new password; it is prompted for, or read from standard input. That user's sessions end.

    With --generate it is made and shown once; whoever signs in with it has to choose another one first.
    """
    new_password = generate_password() if generate else _read_password()

    async def work(context: CommandContext) -> None:
        accounts = Accounts(context.store, Passwords())
        await accounts.set_password(name, new_password, now=context.now, must_change_password=generate)

    run_with_store(config, work, by)
    print_line(f"{name} has a new password.")
    if generate:
        print_line(f"password: {new_password}")


@user_app.command("role")
def change_role(
    name: UserNameArgument,
    role: Annotated[Role, typer.Argument(metavar="ROLE", help="viewer, operator or admin.")],
    config: ConfigOption = None,
    by: ByOption = None,
) -> None:
    """Change a user's role. That user's sessions end."""

    async def work(context: CommandContext) -> None:
        await Accounts(context.store, Passwords()).set_role(name, role, now=context.now)

    run_with_store(config, work, by)
    print_line(f"{name} is {role.value} now.")


@user_app.command("reveal")
def change_reveal(
    name: UserNameArgument,
    on: Annotated[bool, typer.Option("--on/--off", help="Give the right, or take it.")],
    config: ConfigOption = None,
    by: ByOption = None,
) -> None:
    """Give a user the right to search for patients and to see their names, or take it. That user's sessions end."""

    async def work(context: CommandContext) -> None:
        await Accounts(context.store, Passwords()).set_reveal(name, may_reveal=on, now=context.now)

    run_with_store(config, work, by)
    print_line(f"{name} {'may' if on else 'may not'} reveal patients now.")


_USER_COLUMNS = ("name", "role", "may_reveal", "since")


@user_app.command("list")
def list_users(
    config: ConfigOption = None, columns: ColumnsOption = None, wide: WideOption = False, as_json: JsonOption = False
) -> None:
    """List the users."""
    chosen = choose_columns(_USER_COLUMNS, columns, wide=wide)

    async def work(context: CommandContext) -> tuple[Account, ...]:
        return await Accounts(context.store, Passwords()).list()

    accounts = run_with_store(config, work)
    empty_text = "No users yet; add one with `lab-agent user add NAME --role admin`."
    print_list([_user_row(account) for account in accounts], as_json=as_json, columns=chosen, empty_text=empty_text)


@user_app.command()
def remove(name: UserNameArgument, config: ConfigOption = None, by: ByOption = None) -> None:
    """Remove a user; that user's sessions end."""

    async def work(context: CommandContext) -> bool:
        return await Accounts(context.store, Passwords()).remove(name, now=context.now)

    if not run_with_store(config, work, by):
        raise StoreError(f"No user {name}; `lab-agent user list` lists them.")
    print_line(f"{name} was removed.")


def _read_password() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    return sys.stdin.readline().rstrip("\r\n")


def _user_row(account: Account) -> Row:
    return {"name": account.name, "role": account.role, "may_reveal": account.may_reveal, "since": account.created_at}
