"""What `lab-agent init` must know, and how it asks for what was not given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import typer

from lab_agent.settings.exchange import Grant

GRANTS: tuple[str, ...] = get_args(Grant)
_EVERY = frozenset(GRANTS)
_WITH_PASSWORD = frozenset({"password", "basic"})
_WITH_TOKENS = _EVERY - {"basic"}
_SERVICE = frozenset({"base_url", "auth_url"})
_ADDRESS = re.compile(r"https?://[^/@\s]+(/\S*)?$")


@dataclass(frozen=True, slots=True)
class Question:
    """One question. `needed` are the grants that cannot do without an answer, `asked` those for which it is asked at all."""

    name: str
    text: str
    default: str | None = None
    hidden: bool = False
    needed: frozenset[str] = _EVERY
    asked: frozenset[str] = _EVERY

    @property
    def option(self) -> str:
        """The option that answers it."""
        return f"--{self.name.replace('_', '-')}"


QUESTIONS = (
    Question("base_url", "API address of the exchange service"),
    Question("lab_codes_url", "Address that the laboratory-side code systems begin with"),
    Question("second_labels_system", "System of second barcodes (empty: none)", needed=frozenset()),
    Question("laboratory", "The laboratory's own guid"),
    Question("grant", f"How the laboratory signs in ({', '.join(GRANTS)})"),
    Question("auth_url", "Authorization address of the service", needed=_WITH_TOKENS, asked=_WITH_TOKENS),
    Question("client_id", "Client id", needed=_WITH_TOKENS, asked=_WITH_TOKENS),
    Question(
        "client_secret", "Client secret (empty: none)", hidden=True, needed=frozenset({"client_credentials"}), asked=_WITH_TOKENS
    ),
    Question("username", "Login", needed=_WITH_PASSWORD, asked=_WITH_PASSWORD),
    Question("password", "Password", hidden=True, needed=_WITH_PASSWORD, asked=_WITH_PASSWORD),
    Question("redirect_uri", "Callback address", "http://127.0.0.1:8485/callback", asked=frozenset({"authorization_code"})),
    Question("contract", "Contract codes, with blanks between them"),
    Question("public_url", "Public address of the laboratory's API (empty: not known yet)", needed=frozenset()),
    Question("catalogue", "Folder of the catalogue", "config/catalogue"),
    Question("store", "Database", "sqlite:///lab-agent.db"),
    Question("orders", "Folder that orders are put into", "lis/orders"),
    Question("results", "Folder that results are taken from", "lis/results"),
)


def answer_all(given: Mapping[str, str | None], *, ask: bool) -> dict[str, str]:
    """Give every answer: as given, else asked for, else the default. Raises a usage error that names all missing options."""
    answers: dict[str, str] = {}
    missing = []
    for question in QUESTIONS:
        grant = answers.get("grant", "")
        if grant and grant not in question.asked:
            continue
        answer = given.get(question.name)
        if answer is None:
            answer = _asked(question, grant) if ask else question.default or ""
        if not answer and ({grant} if grant else _EVERY) <= question.needed:
            missing.append(question.option)
        answers[question.name] = answer.strip()
    if missing:
        raise typer.BadParameter("needed, and there is no terminal to ask at", param_hint=", ".join(missing))
    if answers["grant"] not in GRANTS:
        raise typer.BadParameter(f"is none of {', '.join(GRANTS)}", param_hint="--grant")
    return answers


def _asked(question: Question, grant: str) -> str:
    """Ask until there is an answer, or none is needed."""
    optional = not question.needed or bool(grant and grant not in question.needed)
    default = question.default or ("" if optional else None)
    while True:
        answer = str(
            typer.prompt(question.text, default=default, hide_input=question.hidden, show_default=bool(default), err=True)
        )
        if not (wish := _wish(question, answer.strip())):
            return answer
        typer.echo(wish, err=True)


def _wish(question: Question, answer: str) -> str:
    """What to say to an answer that cannot hold, so that one slip does not cost all the others; empty where it can."""
    if question.name == "grant" and answer not in GRANTS:
        return f"Please choose one of {', '.join(GRANTS)}."
    if question.name in _SERVICE and not _ADDRESS.match(answer):
        return "Please write it as https://host/path."
    return ""
