"""`lab-agent init`: writes a settings file and what it names from a few answers, and prints the sheet for the registration at
the exchange service.

The TOML is written by hand, since a settings file needs only tables of texts and lists. The file is validated before it gets
its name, and readable for its owner alone.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from pydantic import ValidationError

from lab_agent.atomic_file import sync_folder, temporary_file
from lab_agent.cli.context import JsonOption
from lab_agent.cli.init_files import create_catalogue, create_folder, create_hl7v2_map, create_mappings
from lab_agent.cli.output import Row, print_error, print_fields, print_heading
from lab_agent.crypto import hash_token, new_key, new_token
from lab_agent.errors import Problem, SettingsError
from lab_agent.settings.errors import to_problems
from lab_agent.settings.exchange import Grant
from lab_agent.settings.root import Settings, load_settings

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_table(path: Sequence[str], values: Mapping[str, Any], *, repeated: bool = False) -> str:
    """One TOML table; keys without a value are left out."""
    name = ".".join(_toml_key(part) for part in path)
    lines = [f"[[{name}]]" if repeated else f"[{name}]"]
    lines += [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in values.items() if value is not None]
    return "\n".join(lines) + "\n"


def _toml_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _toml_value(name)


def _toml_value(value: Any) -> str:
    """A value as TOML: its basic strings are those of JSON, except for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


_FILE_HEADER = """# Settings of lab-agent, written by `lab-agent init`. Every key is explained in docs/configuration.md
# and config/lab-agent.example.toml, below the folder that `lab-agent files` prints.
# This file contains secrets: keep it readable for the agent's user alone. Paths are relative to the working directory.
"""


def settings_file_text(
    answers: Mapping[str, str], *, encryption_key: str, token_hash: str, mappings: Path, hl7v2_map: Path
) -> str:
    """The whole file. Empty answers are left out."""
    given = {name: value or None for name, value in answers.items()}
    contracts = [toml_table(("exchange", "contracts", code), {}) for code in contract_codes(answers)]
    parts = [
        _FILE_HEADER,
        toml_table(("exchange",), {name: given.get(name) for name in _EXCHANGE_ANSWERS}),
        toml_table(("exchange", "oauth"), {name: given.get(name) for name in _OAUTH_ANSWERS}),
        *contracts,
        toml_table(("store",), {"url": given["store"], "encryption_keys": [encryption_key]}),
        toml_table(("lis",), {"default": given["adapter"]}),
        *_adapter_tables(given, hl7v2_map),
        toml_table(("results",), {"mappings": str(mappings)}),
        toml_table(("api",), {"public_url": given.get("public_url"), "catalogue": given["catalogue"]}),
        toml_table(("api", "tokens"), {"name": "exchange", "sha256": token_hash}, repeated=True),
    ]
    return "\n".join(parts)


def _adapter_tables(given: Mapping[str, str | None], hl7v2_map: Path) -> list[str]:
    if given["adapter"] == "folder":
        return [toml_table(("lis", "folder"), {"orders": given["orders"], "results": given["results"]})]
    own = {"folder": given["hl7v2_folder"], "duplicates": given["duplicates"], "mapping": str(hl7v2_map)}
    connection = {"role": "client", "host": given["lis_host"], "port": int(given["lis_port"] or 0)}
    return [toml_table(("lis", "hl7v2"), own), toml_table(("lis", "hl7v2", "orders"), connection)]


def contract_codes(answers: Mapping[str, str]) -> tuple[str, ...]:
    """The contract codes, without repeats."""
    return tuple(dict.fromkeys(answers["contract"].replace(",", " ").split()))


def reject_overwriting(path: Path, *, force: bool) -> None:
    """Raise `SettingsError` if the file exists, unless `force`."""
    if path.exists() and not force:
        raise SettingsError((Problem(str(path), "already exists", "choose another with --output, or overwrite it with --force"),))


def write_settings_file(path: Path, text: str, *, force: bool) -> None:
    """Write the file if its settings are valid.

    Raises `SettingsError` if they are not, if the file exists already (without `force`), or if it cannot be written.
    """
    try:
        with temporary_file(path, text.encode()) as temporary:
            load_settings(temporary, {})
            if force:
                temporary.replace(path)
            else:
                path.hardlink_to(temporary)
        sync_folder(path.parent)
    except FileExistsError:
        reject_overwriting(path, force=False)
        raise
    except OSError as exc:
        hint = "choose another path with --output"
        raise SettingsError((Problem(str(path), f"cannot be written: {exc.strerror}", hint),)) from exc


GRANTS: tuple[str, ...] = get_args(Grant)
_ALL_GRANTS = frozenset(GRANTS)
_PASSWORD_GRANTS = frozenset({"password", "basic"})
_OAUTH_GRANTS = _ALL_GRANTS - {"basic"}
ADAPTERS = ("folder", "hl7v2")
_FOLDER, _HL7V2 = (frozenset({name}) for name in ADAPTERS)
_OAUTH_ANSWERS = ("grant", "auth_url", "client_id", "client_secret", "username", "password", "redirect_uri")
_EXCHANGE_ANSWERS = ("base_url", "lab_codes_url", "second_labels_system", "laboratory")
_SETTING_PATHS: Mapping[str, tuple[str, ...]] = {
    **{name: ("exchange", name) for name in _EXCHANGE_ANSWERS},
    **{name: ("exchange", "oauth", name) for name in _OAUTH_ANSWERS},
    "public_url": ("api", "public_url"),
    "catalogue": ("api", "catalogue"),
    "store": ("store", "url"),
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


def collect_answers(given: Mapping[str, str | None], *, ask: bool, catalogue: str = "catalogue") -> dict[str, str]:
    """Collect all answers: given, prompted for, or the default. Raises a usage error that names all missing options.

    `catalogue` is the default of that question, which depends on where the settings file is written.
    """
    answers: dict[str, str] = {}
    missing = []
    for each in SETUP_QUESTIONS:
        question = replace(each, default=catalogue) if each.name == "catalogue" else each
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
    table: Any = answer
    for name in reversed(path):
        table = {name: table}
    try:
        Settings.model_validate(table)
    except ValidationError as exc:
        found = [each for each in to_problems(exc, Settings) if each.where == ".".join(path)]
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
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    ask: Annotated[
        bool | None, typer.Option("--ask/--no-ask", help="Prompt for missing answers. Default: only at a terminal.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a settings file, and print the sheet for the registration at the exchange service. Prompts for missing answers.

    The files that it names are made beside it, where there are none: the sample catalogue, mapping tables, the map of hl7v2.
    """
    given = {name: value for name, value in locals().items() if isinstance(value, str)}
    reject_overwriting(output, force=force)
    codes = {"contract": " ".join(contract)} if contract else {}
    beside = output.parent
    sample = beside / "catalogue"
    answers = collect_answers(given | codes, ask=sys.stdin.isatty() if ask is None else ask, catalogue=str(sample))
    token = new_token()
    mappings, hl7v2_map = beside / "mappings", beside / "hl7v2-map.toml"
    text = settings_file_text(
        answers, encryption_key=new_key(), token_hash=hash_token(token), mappings=mappings, hl7v2_map=hl7v2_map
    )
    write_settings_file(output, text, force=force)
    settings = load_settings(output, {})
    _create_named_files(settings, sample)
    if not as_json:
        print_heading("For the registration at the exchange service (the token is neither stored nor shown again)")
    print_fields(registration_sheet(settings, token), as_json=as_json)
    _print_next_steps(output, settings, contract_codes(answers))


def _create_named_files(settings: Settings, sample: Path) -> None:
    """Make what the settings name; a catalogue in a place that somebody chose is theirs to put there."""
    if settings.api.catalogue == sample:
        create_catalogue(sample)
    if settings.results.mappings is not None:
        create_mappings(settings.results.mappings)
    tables = settings.lis.tables
    if "hl7v2" in tables:
        create_hl7v2_map(Path(tables["hl7v2"]["mapping"]))
    for name in ("orders", "results"):
        if "folder" in tables:
            create_folder(Path(tables["folder"][name]))


def _print_next_steps(output: Path, settings: Settings, contracts: tuple[str, ...]) -> None:
    steps = [
        f"keep a copy of the encryption key in {output}: encrypted data is lost without it",
        f"put the catalogue with the contracts {', '.join(contracts)} into {settings.api.catalogue}, in place of a sample",
        f"put the laboratory's own codes into {settings.results.mappings}; see docs/mappings.md below `lab-agent files`",
        f"lab-agent db upgrade --config {output}",
    ]
    if settings.exchange.oauth.grant == "authorization_code":
        steps.append(f"lab-agent login --config {output}")
    steps += [f"lab-agent check --config {output}", f"lab-agent run --config {output}"]
    print_error(f"\n{output} was written, readable for you alone. Next steps:")
    for number, step in enumerate(steps, 1):
        print_error(f"  {number}. {step}")
