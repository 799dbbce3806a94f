"""`lab-agent init`: writes a settings file and what it names from a few answers, and prints the sheet for the registration at
the exchange service.

The file is validated before it gets its name, and readable for its owner alone. With `--systemd` secrets have files of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from pydantic import ValidationError

from lab_agent.cli.context import JsonOption
from lab_agent.cli.init_files import (
    EXCHANGE_ANSWERS,
    OAUTH_ANSWERS,
    contract_codes,
    create_catalogue,
    create_folder,
    create_hl7v2_map,
    create_mappings,
    reject_overwriting,
    settings_file_text,
    write_settings_file,
)
from lab_agent.cli.init_systemd import ENCRYPTION_KEYS, SystemdSite
from lab_agent.cli.output import Row, print_error, print_fields, print_heading
from lab_agent.settings.errors import to_problems
from lab_agent.settings.exchange import Grant
from lab_agent.settings.root import Settings, load_settings
from lab_agent.store.crypto import hash_token, new_key, new_token

GRANTS: tuple[str, ...] = get_args(Grant)
_ALL_GRANTS = frozenset(GRANTS)
_PASSWORD_GRANTS = frozenset({"password", "basic"})
_OAUTH_GRANTS = _ALL_GRANTS - {"basic"}
ADAPTERS = ("folder", "hl7v2")
_FOLDER, _HL7V2 = (frozenset({name}) for name in ADAPTERS)
_SETTING_PATHS: Mapping[str, tuple[str, ...]] = {
    **{name: ("exchange", name) for name in EXCHANGE_ANSWERS},
    **{name: ("exchange", "oauth", name) for name in OAUTH_ANSWERS},
    "public_url": ("api", "public_url"),
    "catalogue": ("api", "catalogue"),
    "store": ("store", "url"),
    "contract": ("exchange", "contracts"),
}
"""Answer to the setting that it becomes."""


@dataclass(frozen=True, slots=True)
class SetupQuestion:
    """One question. `required_for` are the grants that need an answer; it is asked for `asked_for` and `adapters`."""

    name: str
    text: str
    default: str | None = None
    hidden: bool = False
    required_for: frozenset[str] = _ALL_GRANTS
    asked_for: frozenset[str] = _ALL_GRANTS
    adapters: frozenset[str] = frozenset(ADAPTERS)
    choices: tuple[str, ...] = ()

    @property
    def option(self) -> str:
        """The command line option that answers it."""
        return f"--{self.name.replace('_', '-')}"


_DUPLICATES = ("msh10", "placer", "none")
SETUP_QUESTIONS = (
    SetupQuestion("base_url", "API address of the exchange service"),
    SetupQuestion("lab_codes_url", "Base address of the laboratory's code systems"),
    SetupQuestion("second_labels_system", "Code system of second barcodes (empty: none)", required_for=frozenset()),
    SetupQuestion("laboratory", "GUID of the laboratory"),
    SetupQuestion("grant", f"Grant for signing in ({', '.join(GRANTS)})", choices=GRANTS),
    SetupQuestion("auth_url", "Authorization address of the service", required_for=_OAUTH_GRANTS, asked_for=_OAUTH_GRANTS),
    SetupQuestion("client_id", "Client id", required_for=_OAUTH_GRANTS, asked_for=_OAUTH_GRANTS),
    SetupQuestion(
        "client_secret",
        "Client secret (empty: none)",
        hidden=True,
        required_for=frozenset({"client_credentials"}),
        asked_for=_OAUTH_GRANTS,
    ),
    SetupQuestion("username", "Login", required_for=_PASSWORD_GRANTS, asked_for=_PASSWORD_GRANTS),
    SetupQuestion("password", "Password", hidden=True, required_for=_PASSWORD_GRANTS, asked_for=_PASSWORD_GRANTS),
    SetupQuestion(
        "redirect_uri", "Callback address", "http://127.0.0.1:8485/callback", asked_for=frozenset({"authorization_code"})
    ),
    SetupQuestion("contract", "Contract codes, separated by spaces"),
    SetupQuestion("public_url", "Public address of the laboratory's API (empty: unknown yet)", required_for=frozenset()),
    SetupQuestion("catalogue", "Folder of the catalogue", "catalogue"),
    SetupQuestion("store", "Database", "sqlite:///lab-agent.db"),
    SetupQuestion("adapter", f"Way to the laboratory system ({', '.join(ADAPTERS)})", "folder", choices=ADAPTERS),
    SetupQuestion("orders", "Folder that orders are written to", "lis/orders", adapters=_FOLDER),
    SetupQuestion("results", "Folder that results are read from", "lis/results", adapters=_FOLDER),
    SetupQuestion("lis_host", "Host of the laboratory system", adapters=_HL7V2),
    SetupQuestion("lis_port", "Port of the laboratory system", adapters=_HL7V2),
    SetupQuestion("hl7v2_folder", "Folder that the adapter keeps its own data in", "lis/hl7v2", adapters=_HL7V2),
    SetupQuestion(
        "duplicates",
        f"How the laboratory system recognises a repeated order ({', '.join(_DUPLICATES)})",
        "none",
        adapters=_HL7V2,
        choices=_DUPLICATES,
    ),
)


def collect_answers(given: Mapping[str, str | None], defaults: Mapping[str, str], *, ask: bool) -> dict[str, str]:
    """Collect all answers: given, prompted for, or the default. Raises a usage error that names all missing options.

    `defaults` are those that depend on where the settings file is written.
    """
    answers: dict[str, str] = {}
    missing = []
    for each in SETUP_QUESTIONS:
        question = replace(each, default=defaults.get(each.name, each.default))
        grant = answers.get("grant", "")
        if (grant and grant not in question.asked_for) or answers.get("adapter", "folder") not in question.adapters:
            continue
        answer = given.get(question.name)
        if answer is None:
            answer = _prompt_for_answer(question, grant) if ask else question.default or ""
        if not answer and ({grant} if grant else _ALL_GRANTS) <= question.required_for:
            missing.append(question.option)
        answers[question.name] = answer.strip()
    if missing:
        raise typer.BadParameter("required if there is no terminal to ask at", param_hint=", ".join(missing))
    for question in SETUP_QUESTIONS:
        if message := _choice_message(question, answers.get(question.name)):
            raise typer.BadParameter(message, param_hint=question.option)
    return answers


def _prompt_for_answer(question: SetupQuestion, grant: str) -> str:
    """Prompt until the answer is valid."""
    optional = not question.required_for or bool(grant and grant not in question.required_for)
    default = question.default or ("" if optional else None)
    while True:
        answer = str(
            typer.prompt(question.text, default=default, hide_input=question.hidden, show_default=bool(default), err=True)
        )
        message = validation_message(question, answer.strip())
        if not message:
            return answer
        typer.echo(f"This answer {message}. Please try again.", err=True)


def validation_message(question: SetupQuestion, answer: str) -> str:
    """What is wrong with an answer, said at once so that the other answers are not lost; empty if nothing is.

    It is read as the settings are, as the only key of a file; that others are missing is nothing about this one.
    """
    path = _SETTING_PATHS.get(question.name)
    if (message := _choice_message(question, answer)) or not answer or path is None:
        return message
    table: Any = {code: {} for code in contract_codes({"contract": answer})} if question.name == "contract" else answer
    for name in reversed(path):
        table = {name: table}
    try:
        Settings.model_validate(table)
    except ValidationError as exc:
        found = [each for each in to_problems(exc, Settings) if f"{each.where}.".startswith(f"{'.'.join(path)}.")]
        return "; ".join(f"{each.what} ({each.hint})" if each.hint else each.what for each in found)
    return ""


def _choice_message(question: SetupQuestion, answer: str | None) -> str:
    """What is wrong with an answer where only some are possible; empty if nothing is, or it was not asked for."""
    if answer is not None and question.choices and answer not in question.choices:
        return f"must be one of {', '.join(question.choices)}"
    if answer is not None and question.name == "lis_port" and not _is_port(answer):
        return "must be a number from 1 to 65535"
    return ""


def _is_port(answer: str) -> bool:
    return answer.isascii() and answer.isdigit() and 0 < int(answer) <= 65535


_API_ENDPOINTS = ("GET nomenclature", "GET eta", "POST questionnaire", "POST preanalytics")
_NO_PUBLIC_URL = "(unknown yet: set api.public_url)"


def registration_sheet(settings: Settings, token: str) -> Row:
    """Public address, callback address and credentials for the laboratory's API; the token is shown only once."""
    address = (settings.api.public_url or "").rstrip("/")
    oauth = settings.exchange.oauth
    calls = [call.split() for call in _API_ENDPOINTS if address]
    return {
        "laboratory": settings.exchange.laboratory,
        "contracts": sorted(settings.exchange.contracts),
        "public_address": address or _NO_PUBLIC_URL,
        **{name: f"{method} {address}/{name}" for method, name in calls},
        "authorization": f"Authorization: Bearer {token}",
        "callback_address": oauth.redirect_uri or f"(none: the laboratory signs in with {oauth.grant})",
        "client_id": oauth.client_id,
    }


_PATH_ANSWERS = ("catalogue", "orders", "results", "hl7v2_folder")
_SQLITE = "sqlite:///"
_OAUTH_VARIABLE_PREFIX = "LAB_AGENT_EXCHANGE__OAUTH__"


def _text_option(help_text: str) -> Any:
    return typer.Option(help=help_text, show_default=False)


ClientSecretOption = Annotated[
    str | None,
    typer.Option(envvar=f"{_OAUTH_VARIABLE_PREFIX}CLIENT_SECRET", help="Client secret; safer in the environment."),
]
PasswordOption = Annotated[
    str | None, typer.Option(envvar=f"{_OAUTH_VARIABLE_PREFIX}PASSWORD", help="Password; safer in the environment.")
]


def init(  # noqa: PLR0913, PLR0917 - one option for each question, so that it runs unattended
    base_url: Annotated[str | None, _text_option("API address of the exchange service.")] = None,
    auth_url: Annotated[str | None, _text_option("Authorization address of the service.")] = None,
    lab_codes_url: Annotated[str | None, _text_option("Base address of the laboratory's code systems.")] = None,
    second_labels_system: Annotated[str | None, _text_option("Code system of second barcodes.")] = None,
    laboratory: Annotated[str | None, _text_option("GUID of the laboratory.")] = None,
    grant: Annotated[
        str | None, _text_option("Grant for signing in: password, authorization_code, client_credentials or basic.")
    ] = None,
    client_id: Annotated[str | None, _text_option("Client id that the service issued.")] = None,
    client_secret: ClientSecretOption = None,
    username: Annotated[str | None, _text_option("Login, for password and basic.")] = None,
    password: PasswordOption = None,
    redirect_uri: Annotated[str | None, _text_option("Callback address, for authorization_code.")] = None,
    contract: Annotated[list[str] | None, typer.Option(help="Contract code; may be repeated.")] = None,
    public_url: Annotated[str | None, _text_option("Public address of the laboratory's API.")] = None,
    catalogue: Annotated[str | None, _text_option("Folder of the catalogue.")] = None,
    store: Annotated[str | None, _text_option("Database.")] = None,
    orders: Annotated[str | None, _text_option("Folder that orders are written to.")] = None,
    results: Annotated[str | None, _text_option("Folder that results are read from.")] = None,
    adapter: Annotated[str | None, _text_option("Way to the laboratory system: folder or hl7v2.")] = None,
    lis_host: Annotated[str | None, _text_option("Host of the laboratory system, for hl7v2.")] = None,
    lis_port: Annotated[str | None, _text_option("Port of the laboratory system, for hl7v2.")] = None,
    hl7v2_folder: Annotated[str | None, _text_option("Folder that the adapter keeps its own data in, for hl7v2.")] = None,
    duplicates: Annotated[
        str | None, _text_option("How the laboratory system recognises a repeated order: msh10, placer or none, for hl7v2.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path("lab-agent.toml"),
    systemd: Annotated[
        bool,
        typer.Option("--systemd", help="Write to /etc what the systemd units need: settings, secrets, folders. As root."),
    ] = False,
    site: Annotated[
        str | None, typer.Option(help="With --systemd: one of several sites, the name after the @ of its units.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    ask: Annotated[
        bool | None, typer.Option("--ask/--no-ask", help="Prompt for missing answers. Default: only at a terminal.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a settings file, and print the sheet for the registration at the exchange service. Prompts for missing answers.

    The files that it names are made beside it, where there are none: the sample catalogue, mapping tables, the map of hl7v2.
    """
    given = {name: value for name, value in locals().items() if isinstance(value, str) and name != "site"}
    installed = SystemdSite.named(site) if systemd else None
    if site and not systemd:
        raise typer.BadParameter("only with --systemd", param_hint="--site")
    output = installed.settings if installed else output
    reject_overwriting(output, force=force)
    codes = {"contract": " ".join(contract)} if contract else {}
    sample = output.parent.absolute() / "catalogue"
    defaults = {"catalogue": str(sample), **(installed.defaults() if installed else {})}
    collected = collect_answers(given | codes, defaults, ask=sys.stdin.isatty() if ask is None else ask)
    answers = _make_absolute(collected, installed.state if installed else Path.cwd())
    token = new_token()
    settings = _write_files(output, answers, hash_token(token), installed, force=force)
    if not as_json:
        print_heading("For the registration at the exchange service (the token is neither stored nor shown again)")
    print_fields(registration_sheet(settings, token), as_json=as_json)
    print_error(f"\n{output} was written, readable for {installed.name if installed else 'you'} alone. Next steps:")
    for number, step in enumerate(_next_steps(output, settings, installed), 1):
        print_error(f"  {number}. {step}")


def _make_absolute(answers: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Make the paths absolute, so that the programs find the same files and the same database wherever they are started.

    `folder` is where the programs work; root's own may be closed to them.
    """
    paths = {name: str(folder / answers[name]) for name in _PATH_ANSWERS if answers.get(name)}
    store = answers["store"]
    if store.startswith(_SQLITE):
        paths["store"] = f"{_SQLITE}{folder / store.removeprefix(_SQLITE)}"
    return {**answers, **paths}


def _write_files(
    output: Path, answers: Mapping[str, str], token_hash: str, installed: SystemdSite | None, *, force: bool
) -> Settings:
    """Write the settings, and make what they name; a catalogue in a place that somebody chose is theirs to put there."""
    key, backups, variables = new_key(), None, dict[str, str]()
    if installed:
        installed.prepare()
        answers, variables = installed.store_secrets(answers, key)
        key, backups = "", installed.backups
    sample, mappings, hl7v2_map = (output.parent.absolute() / name for name in ("catalogue", "mappings", "hl7v2-map.toml"))
    text = settings_file_text(
        answers, encryption_key=key, token_hash=token_hash, mappings=mappings, hl7v2_map=hl7v2_map, backups=backups
    )
    write_settings_file(output, text, variables, force=force)
    settings = load_settings(output, variables)
    if settings.api.catalogue == sample:
        create_catalogue(sample)
    create_mappings(mappings)
    tables = settings.lis.tables
    if "hl7v2" in tables:
        create_hl7v2_map(hl7v2_map)
    folders = [Path(tables["folder"][name]) for name in ("orders", "results") if "folder" in tables]
    if installed:
        installed.hand_over(folders or [Path(tables["hl7v2"]["folder"])])
    else:
        for folder in folders:
            create_folder(folder)
    return settings


def _next_steps(output: Path, settings: Settings, installed: SystemdSite | None) -> Iterator[str]:
    """What is left to do; the last step starts it."""
    key = installed.credentials / ENCRYPTION_KEYS if installed else f"the encryption key in {output}"
    program, config = (installed.control, "") if installed else ("lab-agent", f" --config {output}")
    yield f"keep a copy of {key}: encrypted data is lost without it"
    contracts = ", ".join(settings.exchange.contracts)
    yield f"put the catalogue with the contracts {contracts} into {settings.api.catalogue}, in place of a sample"
    yield f"put the laboratory's own codes into {settings.results.mappings}; see docs/mappings.md below `lab-agent files`"
    yield f"{program} db upgrade{config}"
    if settings.exchange.oauth.grant == "authorization_code":
        yield f"{program} login{config}"
    yield f"{program} check{config}"
    yield f"systemctl enable --now {installed.target}" if installed else f"lab-agent run{config}"
