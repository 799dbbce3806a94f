"""A new settings file, and the files that it names: made from what comes with the program, where there are none yet.

The TOML is written by hand, since a settings file needs only tables of texts and lists.
Units and the catalogue are copied whole. Tables of the laboratory's own codes begin with their heading alone, and the HL7 v2 map
with comments alone: an example's code would go to a clinic as if it were the laboratory's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab_agent.settings.root import load_settings
from lab_agent.shared.atomic_file import sync_folder, temporary_file
from lab_agent.shared.errors import Problem, SettingsError
from lab_agent.shared.shipped_files import shipped_path

OAUTH_ANSWERS = ("grant", "auth_url", "client_id", "client_secret", "username", "password", "redirect_uri")
EXCHANGE_ANSWERS = ("base_url", "lab_codes_url", "second_labels_system", "laboratory")
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
"""
_WITH_SECRETS = "# This file contains secrets: keep it readable for the agent's user alone.\n"
_FIRST_START = (
    '# Writes nothing to the exchange service or to the laboratory system. Once all is well: "normal", and a restart.\n'
)


def settings_file_text(
    answers: Mapping[str, str],
    *,
    encryption_key: str,
    token_hash: str,
    mappings: Path,
    hl7v2_map: Path,
    backups: Path | None = None,
) -> str:
    """The whole file. Empty answers are left out.

    Without a key, the secrets are elsewhere. With a folder for `backups` it is for units of systemd, and begins by observing.
    """
    given = {name: value or None for name, value in answers.items()}
    contracts = [toml_table(("exchange", "contracts", code), {}) for code in contract_codes(answers)]
    parts = [
        _FILE_HEADER + (_WITH_SECRETS if encryption_key else ""),
        toml_table(("exchange",), {name: given.get(name) for name in EXCHANGE_ANSWERS}),
        toml_table(("exchange", "oauth"), {name: given.get(name) for name in OAUTH_ANSWERS}),
        *contracts,
        toml_table(("store",), {"url": given["store"], "encryption_keys": [encryption_key] if encryption_key else None}),
        *([] if backups is None else _installation_tables(backups)),
        toml_table(("lis",), {"default": given["adapter"]}),
        *_adapter_tables(given, hl7v2_map),
        toml_table(("results",), {"mappings": str(mappings)}),
        toml_table(("api",), {"public_url": given.get("public_url"), "catalogue": given["catalogue"]}),
        toml_table(("api", "tokens"), {"name": "exchange", "sha256": token_hash}, repeated=True),
    ]
    return "\n".join(parts)


def _installation_tables(backups: Path) -> list[str]:
    return [toml_table(("backup",), {"folder": str(backups)}), _FIRST_START + toml_table(("worker",), {"mode": "observe"})]


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


def write_settings_file(path: Path, text: str, secrets: Mapping[str, str], *, force: bool) -> None:
    """Write the file if its settings are valid together with `secrets`, which are variables of the environment.

    Raises `SettingsError` if they are not, if the file exists already (without `force`), or if it cannot be written.
    """
    try:
        with temporary_file(path, text.encode()) as temporary:
            load_settings(temporary, secrets)
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


def create_catalogue(target: Path) -> None:
    """Make a folder with the sample catalogue, unless something is there."""
    _create_folder(target, {file.name: file.read_bytes() for file in shipped_path("config/catalogue").glob("*.csv")})


def create_mappings(target: Path) -> None:
    """Make a folder with the table of units and empty tables of codes and answers, unless something is there."""
    tables = {file.name: file.read_bytes() for file in shipped_path("config/mappings").glob("*.csv")}
    headings = {name: content.splitlines(keepends=True)[0] for name, content in tables.items() if name != "units.csv"}
    _create_folder(target, tables | headings)


def create_hl7v2_map(target: Path) -> None:
    """Make a map that changes nothing: the example with every line as a comment. A map that is there is kept."""
    lines = shipped_path("config/hl7v2/mapping.toml").read_text(encoding="utf-8").splitlines()
    text = "\n".join(f"# {line}" if line and not line.startswith("#") else line for line in lines)
    with _explained(target):
        if not target.exists():
            target.write_text(f"{text}\n", encoding="utf-8")


def create_folder(target: Path) -> None:
    """Make an empty folder, unless it is there."""
    with _explained(target):
        target.mkdir(parents=True, exist_ok=True)


def _create_folder(target: Path, files: Mapping[str, bytes]) -> None:
    with _explained(target):
        if target.exists():
            return
        target.mkdir(parents=True)
        for name, content in files.items():
            (target / name).write_bytes(content)


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        hint = "the settings file was written; correct this, and create what is missing"
        raise SettingsError((Problem(str(target), f"cannot be written: {exc.strerror}", hint),)) from exc
