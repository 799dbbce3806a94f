"""Where settings come from: a TOML file, the environment, the credentials folder of systemd. Each gives a nested table.

A source never stops at the first thing that it cannot read: it gives what it could read, and the problems.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab_agent.shared.errors import Problem, did_you_mean

ENVIRONMENT_PREFIX = "LAB_AGENT_"
CONFIG_VARIABLE = "LAB_AGENT_CONFIG"
CREDENTIALS_VARIABLE = "CREDENTIALS_DIRECTORY"
_PRIVATE_VARIABLES = frozenset({CREDENTIALS_VARIABLE, "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"})
"""Variables that are our own: secrets, and systemd's."""
_CERTIFICATE_SUFFIXES = frozenset({"cer", "crt", "der", "key", "p12", "pem", "pfx"})
_LET_AGENT_READ = "let the user that the agent runs as read it"


@dataclass(frozen=True, slots=True)
class Source:
    """What one source gave; `origins` says for a dotted key where its value came from."""

    table: dict[str, Any] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)


def environment_of_others(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program that the settings name: without our settings and secrets."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(ENVIRONMENT_PREFIX) and name not in _PRIVATE_VARIABLES
    }


def read_toml_file(path: Path) -> Source:
    """Read a TOML file."""
    try:
        return Source(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return _failed_source(
            path, "there is no such file", "name the right one with --config, or make one with `lab-agent init`"
        )
    except IsADirectoryError:
        return _failed_source(path, "is a folder", "name a settings file in it")
    except OSError as exc:
        return _failed_source(path, f"cannot be read: {exc.strerror}", _LET_AGENT_READ)
    except UnicodeDecodeError as exc:
        return _failed_source(path, f"is not UTF-8 at byte {exc.start}", "save it as UTF-8")
    except tomllib.TOMLDecodeError as exc:
        return _failed_source(path, f"is not TOML: {exc}", "write text values in quotes, and table names in [brackets]")


def read_environment(environ: Mapping[str, str], groups: Collection[str]) -> Source:
    """Read `LAB_AGENT_<GROUP>__<KEY>` variables, further levels joined by `__` too."""
    values, origins, problems = {}, {}, []
    for name in sorted(environ):
        if not name.startswith(ENVIRONMENT_PREFIX) or name == CONFIG_VARIABLE:
            continue
        path = name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
        if path[0] not in groups:
            hint = did_you_mean(path[0], groups) or f"the tables are {', '.join(sorted(groups))}"
            problems.append(Problem(name, "unknown table", hint))
        else:
            values[tuple(path)] = environ[name]
            origins[".".join(path)] = name
    return Source(_build_tree(values), tuple(problems), origins)


_OF_FOLDER = "settings_"
"""What systemd puts before the name of each file of a folder, with `LoadCredential=settings:/etc/lab-agent/credentials`."""


def read_credentials(
    folder: Path | None, groups: Collection[str], is_given: Callable[[str], bool] = lambda _file: True
) -> Source:
    """Read files named like `exchange.oauth.password`; a final line end is no part of the value.

    A credential that a unit names itself wins over that of its folder. Files that do not begin with a table's name are left
    alone: a unit may load other things, such as certificates.
    """
    if folder is None:
        return Source()
    try:
        files = sorted(path for path in folder.iterdir() if not path.is_dir() and is_given(path.name))
        files.sort(key=lambda file: not file.name.startswith(_OF_FOLDER))
    except OSError as exc:
        what = f"the credentials folder cannot be read: {exc.strerror}"
        return _failed_source(folder, what, f"correct ${CREDENTIALS_VARIABLE}, or let the agent's user read the folder")
    values, origins, problems = {}, {}, []
    for file in files:
        name = file.name.removeprefix(_OF_FOLDER)
        path = name.split(".")
        if path[0] not in groups or len(path) == 1:
            if len(path) > 1 and path[-1].lower() not in _CERTIFICATE_SUFFIXES and (hint := did_you_mean(path[0], groups)):
                problems.append(Problem(str(file), "unknown table", hint))
            continue
        try:
            values[tuple(path)] = file.read_text(encoding="utf-8").rstrip("\r\n")
            origins[name] = f"credential {name}"
        except OSError as exc:
            problems.append(Problem(str(file), f"cannot be read: {exc.strerror}", _LET_AGENT_READ))
        except UnicodeDecodeError:
            problems.append(Problem(str(file), "is not UTF-8", "save it as UTF-8"))
    return Source(_build_tree(values), tuple(problems), origins)


def deep_merge(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one tree of tables over another."""
    merged = dict(base)
    for key, value in override.items():
        under = merged.get(key)
        merged[key] = deep_merge(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return merged


def credentials_folder(environ: Mapping[str, str]) -> Path | None:
    """The folder that systemd hands to the unit, if it does."""
    return Path(environ[CREDENTIALS_VARIABLE]) if environ.get(CREDENTIALS_VARIABLE) else None


def _failed_source(path: Path, what: str, hint: str) -> Source:
    return Source(problems=(Problem(str(path), what, hint),))


def _build_tree(values: Mapping[tuple[str, ...], str]) -> dict[str, Any]:
    """Make a tree of paths; where one path is the beginning of another, the longer one wins."""
    tree: dict[str, Any] = {}
    for path, value in sorted(values.items()):
        table = tree
        for name in path[:-1]:
            inner = table.get(name)
            table[name] = inner if isinstance(inner, dict) else {}
            table = table[name]
        table[path[-1]] = value
    return tree
