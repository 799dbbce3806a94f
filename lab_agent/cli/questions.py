"""What `lab-agent init` must know, and how it asks for what was not given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import typer

from lab_agent.settings.exchange import Grant

GRANTS: tuple[str, ...] = get_args(Grant)
_ALL_GRANTS = frozenset(GRANTS)
_PASSWORD_GRANTS = frozenset({"password", "basic"})
_OAUTH_GRANTS = _ALL_GRANTS - {"basic"}
_SERVICE_URLS = frozenset({"base_url", "auth_url"})
_URL_PATTERN = re.compile(r"https?://[^/@\s]+(/\S*)?$")


@dataclass(frozen=True, slots=True)
class SetupQuestion:
    """One question. `needed` are the grants that cannot do without an answer, `asked` those for which it is asked at all."""

    name: str
    text: str
    default: str | None = None
    hidden: bool = False
    required_for: frozenset[str] = _ALL_GRANTS
    asked_for: frozenset[str] = _ALL_GRANTS

    @property
    def option(self) -> str:
        """The option that answers it."""
        return f"--{self.name.replace('_', '-')}"


SETUP_QUESTIONS = (
    SetupQuestion("base_url", "API address of the exchange service"),
    SetupQuestion("lab_codes_url", "Address that the laboratory-side code systems begin with"),
    SetupQuestion("second_labels_system", "System of second barcodes (empty: none)", required_for=frozenset()),
    SetupQuestion("laboratory", "The laboratory's own guid"),
    SetupQuestion("grant", f"How the laboratory signs in ({', '.join(GRANTS)})"),
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
    SetupQuestion("contract", "Contract codes, with blanks between them"),
    SetupQuestion("public_url", "Public address of the laboratory's API (empty: not known yet)", required_for=frozenset()),
    SetupQuestion("catalogue", "Folder of the catalogue", "config/catalogue"),
    SetupQuestion("store", "Database", "sqlite:///lab-agent.db"),
    SetupQuestion("orders", "Folder that orders are put into", "lis/orders"),
    SetupQuestion("results", "Folder that results are taken from", "lis/results"),
)


def collect_answers(given: Mapping[str, str | None], *, ask: bool) -> dict[str, str]:
    """Give every answer: as given, else asked for, else the default. Raises a usage error that names all missing options."""
    answers: dict[str, str] = {}
    missing = []
    for question in SETUP_QUESTIONS:
        grant = answers.get("grant", "")
        if grant and grant not in question.asked_for:
            continue
        answer = given.get(question.name)
        if answer is None:
            answer = _prompt_for_answer(question, grant) if ask else question.default or ""
        if not answer and ({grant} if grant else _ALL_GRANTS) <= question.required_for:
            missing.append(question.option)
        answers[question.name] = answer.strip()
    if missing:
        raise typer.BadParameter("needed, and there is no terminal to ask at", param_hint=", ".join(missing))
    if answers["grant"] not in GRANTS:
        raise typer.BadParameter(f"is none of {', '.join(GRANTS)}", param_hint="--grant")
    return answers


def _prompt_for_answer(question: SetupQuestion, grant: str) -> str:
    """Ask until there is an answer, or none is needed."""
    optional = not question.required_for or bool(grant and grant not in question.required_for)
    default = question.default or ("" if optional else None)
    while True:
        answer = str(
            typer.prompt(question.text, default=default, hide_input=question.hidden, show_default=bool(default), err=True)
        )
        if not (wish := _validation_message(question, answer.strip())):
            return answer
        typer.echo(wish, err=True)


def _validation_message(question: SetupQuestion, answer: str) -> str:
    """What to say to an answer that cannot hold, so that one slip does not cost all the others; empty where it can."""
    if question.name == "grant" and answer not in GRANTS:
        return f"Please choose one of {', '.join(GRANTS)}."
    if question.name in _SERVICE_URLS and not _URL_PATTERN.match(answer):
        return "Please write it as https://host/path."
    return ""
