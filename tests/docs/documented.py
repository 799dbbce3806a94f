"""What the pages name, for comparing it with the program: commands, options, units, settings, variables, metrics, headings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from typer.main import get_command

from lab_agent.cli.app import app as agent
from lab_agent.cli.lazy_commands import load_command
from lab_agent.settings.root import Settings
from lab_api.cli import app as api
from lab_sandbox.cli import app as sandbox
from tests.harness.paths import ROOT

PROGRAMS = {"lab-agent": agent, "lab-api": api, "lab-sandbox": sandbox, "lab-agentctl": agent}
_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^ {4,}(\S.*)$", re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
_OF_SHELLS = {"", "sh", "sh network", "sh person", "bash", "console"}
_SEPARATORS = re.compile(r"\s(?:\||&&|;|>|>>|<|2>&1)\s|\s#\s|;$|\$\(|\)[\"/]")
_PLACEHOLDER = re.compile(r"[A-Z…<\[(].*|.*…|\.\.\.|\d+")


def blocks(text: str, *kinds: str) -> Iterator[str]:
    """The fenced blocks of these kinds (the words after the fence)."""
    for kind, block in _BLOCK.findall(text):
        if kind.strip() in kinds:
            yield block


def command_lines(text: str) -> Iterator[list[str]]:
    """Each command line of ours that a page shows, as words that begin with the program's name."""
    shown = [line for block in blocks(text, *_OF_SHELLS) for line in block.replace("\\\n", " ").splitlines()]
    prose = _BLOCK.sub("", text)
    for line in (*shown, *_INDENTED.findall(prose), *_INLINE.findall(prose)):
        for part in _SEPARATORS.split(line):
            yield from _ours(part)


def _ours(line: str) -> Iterator[list[str]]:
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    while words and (words[0] in {"$", "#", "sudo", "systemd-cat"} or re.fullmatch(r"[A-Z_]+=\S*", words[0])):
        words = words[1:]
    if words and Path(words[0]).name in {*PROGRAMS, "make"}:
        yield [Path(words[0]).name, *words[1:]]


def find_wrong_words(words: list[str]) -> list[str]:
    """What the program does not know of a command line: a command, an option, a target or a variable of make."""
    program, *rest = words
    if program == "make":
        return [word for word in rest if not _is_of_make(word)]
    if program == "lab-agentctl" and rest[:1] == ["--site"]:
        rest = rest[2:]
    command: Any = _command_of(program)
    while rest and getattr(command, "commands", None) and not rest[0].startswith("-"):
        name, *rest = rest
        if _PLACEHOLDER.fullmatch(name) and name not in command.commands:
            return []
        found = command.commands.get(name) or getattr(command, "documented_commands", {}).get("NAME")
        if found is None:
            return [name]
        command = load_command(found)
    known = {"--help", "-h", "--version"} | {each for parameter in command.params for each in _options(parameter)}
    return [word for word in rest if re.match(r"--?[a-z]", word) and word.partition("=")[0].strip("…") not in known]


@cache
def _command_of(program: str) -> Any:
    return load_command(get_command(PROGRAMS[program]))


def _options(parameter: Any) -> list[str]:
    return [*parameter.opts, *parameter.secondary_opts]


@cache
def _makefile() -> str:
    return (ROOT / "Makefile").read_text(encoding="utf-8")


def _is_of_make(word: str) -> bool:
    name, assigned, _ = word.partition("=")
    if assigned:
        return bool(re.search(rf"\$\((?:if \$\()?{name}\b", _makefile()))
    return bool(_PLACEHOLDER.fullmatch(word)) or bool(re.search(rf"^{re.escape(word)}:", _makefile(), re.MULTILINE))


def unit_names(text: str) -> Iterator[str]:
    """The names of our units; that of an instance is given as its template's."""
    for name, instance, ending in re.findall(r"\b(lab-(?:agent|api)[a-z-]*)(@[a-z%$]*)?\.(service|timer|target)\b", text):
        yield f"{name}{'@' if instance else ''}.{ending}"


def variables(text: str) -> Iterator[str]:
    """The environment variables that are settings, as settings: `LAB_AGENT_STORE__URL` is `store.url`."""
    for name in re.findall(r"\bLAB_AGENT_([A-Z][A-Z0-9_]*[A-Z0-9])\b", text):
        yield name.lower().replace("__", ".")


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The dotted names of a TOML table."""
    for key, value in table.items():
        name = f"{prefix}{key}"
        entries = value if isinstance(value, list) else [value]
        yield name
        for each in entries:
            if isinstance(each, dict):
                yield from flatten(each, f"{name}.")


def is_setting(name: str) -> bool:
    """Whether there is such a setting; below a table of free names everything is."""
    model: type[BaseModel] | None = Settings
    for part in name.split("."):
        if model is None or part not in model.model_fields:
            return model is None or model.model_config.get("extra") == "allow"
        annotation = model.model_fields[part].annotation
        model = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
    return True


def headings(text: str) -> set[str]:
    """The anchors that GitHub makes of the headings."""
    plain = _BLOCK.sub("", text)
    found: set[str] = set()
    for title in re.findall(r"^#{1,6} (.+)$", plain, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).strip().lower()
        found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return found | set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
