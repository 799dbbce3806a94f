"""`lab-agent init`: from a few answers to a settings file that holds, and the sheet for the registration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lab_agent.cli.new_file import contract_codes, file_text, refuse_overwriting, write
from lab_agent.cli.options import AsJson
from lab_agent.cli.questions import answer_all
from lab_agent.cli.sheet import sheet
from lab_agent.cli.shown import complain, heading, show_one
from lab_agent.crypto import hash_token, new_key, new_token
from lab_agent.settings import Settings, load_settings

_OAUTH = "LAB_AGENT_EXCHANGE__OAUTH__"
Text = Annotated[str | None, typer.Option(show_default=False)]
ClientSecret = Annotated[str | None, typer.Option(envvar=f"{_OAUTH}CLIENT_SECRET", help="Better by the environment.")]
Password = Annotated[str | None, typer.Option(envvar=f"{_OAUTH}PASSWORD", help="Better by the environment.")]


def init(  # noqa: PLR0913, PLR0917 - one option for each question, so that nobody needs to sit there
    base_url: Text = None,
    auth_url: Text = None,
    lab_codes_url: Text = None,
    second_labels_system: Text = None,
    laboratory: Text = None,
    grant: Text = None,
    client_id: Text = None,
    client_secret: ClientSecret = None,
    username: Text = None,
    password: Password = None,
    redirect_uri: Text = None,
    contract: Annotated[list[str] | None, typer.Option(help="A contract's code; may be given several times.")] = None,
    public_url: Text = None,
    catalogue: Text = None,
    store: Text = None,
    orders: Text = None,
    results: Text = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path("lab-agent.toml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")] = False,
    ask: Annotated[
        bool | None, typer.Option("--ask/--no-ask", help="Ask for what was not given; by default at a terminal.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a settings file, and print the sheet that the laboratory sends for its registration. Asks for what is not given."""
    given = {name: value for name, value in locals().items() if isinstance(value, str)}
    refuse_overwriting(output, force=force)
    codes = {"contract": " ".join(contract)} if contract else {}
    answers = answer_all(given | codes, ask=sys.stdin.isatty() if ask is None else ask)
    token = new_token()
    write(output, file_text(answers, encryption_key=new_key(), token_hash=hash_token(token)), force=force)
    settings = load_settings(output, {})
    if not as_json:
        heading("For the registration at the exchange service (the token is not stored and not shown again)")
    show_one(sheet(settings, token), as_json=as_json)
    _what_next(output, settings, contract_codes(answers))


def _what_next(output: Path, settings: Settings, contracts: tuple[str, ...]) -> None:
    steps = [
        f"keep a copy of the encryption key in {output}: what is encrypted is lost without it",
        f"make the folders {settings.lis.tables['folder']['orders']} and {settings.lis.tables['folder']['results']}",
        f"put the catalogue with the contracts {', '.join(contracts)} into {settings.api.catalogue}",
        f"lab-agent db upgrade --config {output}",
    ]
    if settings.exchange.oauth.grant == "authorization_code":
        steps.append(f"lab-agent login --config {output}")
    steps += [f"lab-agent check --config {output}", f"lab-agent run --config {output}"]
    complain(f"\n{output} is written, readable for you alone. What is next:")
    for number, step in enumerate(steps, 1):
        complain(f"  {number}. {step}")
