"""The settings file that `lab-agent init` writes: short, private to its owner, checked before it gets its name."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from lab_agent.cli.toml_text import toml_table
from lab_agent.errors import Problem, SettingsError
from lab_agent.settings.root import load_settings

_FILE_HEADER = """# Settings of lab-agent, written by `lab-agent init`. Every key is explained in config/lab-agent.example.toml.
# This file holds secrets: keep it readable for the agent's user alone. Relative paths are relative to the working directory.
"""


def settings_file_text(answers: Mapping[str, str], *, encryption_key: str, token_hash: str) -> str:
    """The whole file. Answers that are empty are left out."""
    given = {name: value or None for name, value in answers.items()}
    oauth = ("grant", "auth_url", "client_id", "client_secret", "username", "password", "redirect_uri")
    exchange = ("base_url", "lab_codes_url", "second_labels_system", "laboratory")
    contracts = [toml_table(("exchange", "contracts", code), {}) for code in contract_codes(answers)]
    parts = [
        _FILE_HEADER,
        toml_table(("exchange",), {name: given.get(name) for name in exchange}),
        toml_table(("exchange", "oauth"), {name: given.get(name) for name in oauth}),
        *contracts,
        toml_table(("store",), {"url": given["store"], "encryption_keys": [encryption_key]}),
        toml_table(("lis",), {"default": "folder"}),
        toml_table(("lis", "folder"), {"orders": given["orders"], "results": given["results"]}),
        toml_table(("api",), {"public_url": given.get("public_url"), "catalogue": given["catalogue"]}),
        toml_table(("api", "tokens"), {"name": "exchange", "sha256": token_hash}, repeated=True),
    ]
    return "\n".join(parts)


def contract_codes(answers: Mapping[str, str]) -> tuple[str, ...]:
    """The contract codes, each once."""
    return tuple(dict.fromkeys(answers["contract"].replace(",", " ").split()))


def refuse_overwriting(path: Path, *, force: bool) -> None:
    """Raise `SettingsError` if the file is there and shall stay."""
    if path.exists() and not force:
        raise SettingsError((Problem(str(path), "is there already", "name another with --output, or overwrite it with --force"),))


def write_settings_file(path: Path, text: str, *, force: bool) -> None:
    """Write the file if its settings are valid: to a private neighbour first, then under its own name.

    Raises `SettingsError` where they are not, where the file is there already (and not `force`), or cannot be written.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        load_settings(part, {})
        if force:
            part.replace(path)
        else:
            path.hardlink_to(part)
    except FileExistsError:
        refuse_overwriting(path, force=False)
        raise
    except OSError as exc:
        raise SettingsError(
            (Problem(str(path), f"cannot be written: {exc.strerror}", "name another place with --output"),)
        ) from exc
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
