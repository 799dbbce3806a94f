"""`lab-agent init`: from a few answers to a settings file that holds, and the sheet for the registration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from lab_agent.cli.new_file import contract_codes, refuse_overwriting, settings_file_text, write_settings_file
from lab_agent.cli.options import JsonOption
from lab_agent.cli.questions import collect_answers
from lab_agent.cli.sheet import registration_sheet
from lab_agent.cli.shown import print_error, print_fields, print_heading
from lab_agent.crypto import hash_token, new_key, new_token
from lab_agent.settings.root import Settings, load_settings

_OAUTH_VARIABLE_PREFIX = "LAB_AGENT_EXCHANGE__OAUTH__"


def _text_option(help_text: str) -> Any:
    return typer.Option(help=help_text, show_default=False)


ClientSecretOption = Annotated[
    str | None, typer.Option(envvar=f"{_OAUTH_VARIABLE_PREFIX}CLIENT_SECRET", help="Client secret; better by the environment.")
]
PasswordOption = Annotated[
    str | None, typer.Option(envvar=f"{_OAUTH_VARIABLE_PREFIX}PASSWORD", help="Password; better by the environment.")
]


def init(  # noqa: PLR0913, PLR0917 - one option for each question, so that nobody needs to sit there
    base_url: Annotated[str | None, _text_option("API address of the exchange service.")] = None,
    auth_url: Annotated[str | None, _text_option("Authorization address of the service.")] = None,
    lab_codes_url: Annotated[str | None, _text_option("What the laboratory-side code systems begin with.")] = None,
    second_labels_system: Annotated[str | None, _text_option("System of second barcodes.")] = None,
    laboratory: Annotated[str | None, _text_option("The laboratory's own guid.")] = None,
    grant: Annotated[
        str | None, _text_option("How to sign in: password, authorization_code, client_credentials or basic.")
    ] = None,
    client_id: Annotated[str | None, _text_option("Client id that the service issued.")] = None,
    client_secret: ClientSecretOption = None,
    username: Annotated[str | None, _text_option("Login, for password and basic.")] = None,
    password: PasswordOption = None,
    redirect_uri: Annotated[str | None, _text_option("Callback address, for authorization_code.")] = None,
    contract: Annotated[list[str] | None, typer.Option(help="A contract's code; may be given several times.")] = None,
    public_url: Annotated[str | None, _text_option("Public address of the laboratory's API.")] = None,
    catalogue: Annotated[str | None, _text_option("Folder of the catalogue.")] = None,
    store: Annotated[str | None, _text_option("Database.")] = None,
    orders: Annotated[str | None, _text_option("Folder that orders are put into.")] = None,
    results: Annotated[str | None, _text_option("Folder that results are taken from.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path("lab-agent.toml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")] = False,
    ask: Annotated[
        bool | None, typer.Option("--ask/--no-ask", help="Ask for what was not given; by default at a terminal.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a settings file, and print the sheet that the laboratory sends for its registration. Asks for what is not given."""
    given = {name: value for name, value in locals().items() if isinstance(value, str)}
    refuse_overwriting(output, force=force)
    codes = {"contract": " ".join(contract)} if contract else {}
    answers = collect_answers(given | codes, ask=sys.stdin.isatty() if ask is None else ask)
    token = new_token()
    write_settings_file(output, settings_file_text(answers, encryption_key=new_key(), token_hash=hash_token(token)), force=force)
    settings = load_settings(output, {})
    if not as_json:
        print_heading("For the registration at the exchange service (the token is not stored and not shown again)")
    print_fields(registration_sheet(settings, token), as_json=as_json)
    _print_next_steps(output, settings, contract_codes(answers))


def _print_next_steps(output: Path, settings: Settings, contracts: tuple[str, ...]) -> None:
    steps = [
        f"keep a copy of the encryption key in {output}: what is encrypted is lost without it",
        f"make the folders {settings.lis.tables['folder']['orders']} and {settings.lis.tables['folder']['results']}",
        f"put the catalogue with the contracts {', '.join(contracts)} into {settings.api.catalogue}",
        f"lab-agent db upgrade --config {output}",
    ]
    if settings.exchange.oauth.grant == "authorization_code":
        steps.append(f"lab-agent login --config {output}")
    steps += [f"lab-agent check --config {output}", f"lab-agent run --config {output}"]
    print_error(f"\n{output} is written, readable for you alone. What is next:")
    for number, step in enumerate(steps, 1):
        print_error(f"  {number}. {step}")
