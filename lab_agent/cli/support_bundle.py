"""`lab-agent support-bundle`: what somebody elsewhere needs to help, as one file without patient data and without secrets.

Every member is made from what names nobody (law 7). Log lines are taken only where they have the form that our log writes, which
redacts; and whatever is written, each secret of the settings is replaced in it once more.
"""

from __future__ import annotations

import asyncio
import io
import json
import platform
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, SecretStr

from lab_agent.cli.context import ByOption, CommandContext, ConfigOption, run_with_store
from lab_agent.cli.operation import Operation
from lab_agent.cli.operation_output import operation_to_json
from lab_agent.cli.output import print_line, to_plain
from lab_agent.cli.status import read_status
from lab_agent.operations.audit_log import record
from lab_agent.settings.introspection import MASK, is_secret_name, mask_secrets, mask_url_password
from lab_agent.settings.root import Settings, load_settings
from lab_agent.shared.errors import CryptoError, InputError, LabAgentError, StoreError, StoreUnreachableError
from lab_agent.store.audit_records import AuditAction, AuditEntry
from lab_agent.store.event_records import Alert
from lab_agent.store.read_models import Overview
from lab_agent.store.schema import check_schema
from lab_agent.store.schema_versions import head_revision

_LOG_BYTES = 2_000_000
_LOG_LINES = 5_000
_ALERTS = 1_000
_SHORTEST_SECRET = 4
_CONSOLE_LINE = re.compile(r"\S+ +\[(debug|info|warning|error|critical) *\] ")
_TERMINAL_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_URL_USER = re.compile(r"://[^/@\s:]*:([^/@\s]+)@")


def support_bundle(
    config: ConfigOption = None,
    to: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="File to write; it must not exist yet.")] = None,
    log: Annotated[
        Path | None,
        typer.Option("--log", metavar="FILE", help="Log whose end to add. Default: in `monitoring.log_folder`."),
    ] = None,
    by: ByOption = None,
) -> None:
    """Write settings, versions, conditions, counts and the end of the log to one file, without patient data or secrets."""
    settings = load_settings(config, requires_login=False)
    now = datetime.now(UTC)
    target = to or Path(f"lab-agent-support-{now:%Y%m%d-%H%M%S}.tar.gz")
    lines = read_log_lines(log) if log is not None else _newest_log_lines(settings.monitoring.log_folder)
    members = {
        "settings.json": _to_json(mask_secrets(settings)),
        "versions.json": _to_json(_versions()),
        "schema.json": _to_json(_schema(settings)),
        "status.json": _to_json(_status(settings, config)),
        "store.json": _to_json(_store_state(config, by)),
        "log.txt": "".join(f"{line}\n" for line in lines),
    }
    secrets = sorted(set(find_secrets(settings)), key=len, reverse=True)
    _write(target, {name: _redact(text, secrets) for name, text in members.items()}, now)
    print_line(f"{target} was written, readable for you alone: {', '.join(members)}.")


def find_secrets(settings: BaseModel) -> Iterator[str]:
    """Give every secret of the settings as it is: of secret fields, of keys named like one, and passwords in addresses."""
    yield from _secrets_in("", settings.model_dump())


def _secrets_in(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, SecretStr):
        yield from (each for each in (value.get_secret_value(),) if len(each) >= _SHORTEST_SECRET)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _secrets_in(str(key), item)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for item in value:
            yield from _secrets_in(name, item)
    elif isinstance(value, str):
        found = [value] if is_secret_name(name) else _URL_USER.findall(value)
        yield from (each for each in found if len(each) >= _SHORTEST_SECRET)


def read_log_lines(file: Path) -> list[str]:
    """Read the last lines of a log, those alone that have the form of ours; others, as of another program, are counted."""
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, io.SEEK_END)
            opened.seek(max(0, size - _LOG_BYTES))
            text = opened.read().decode("utf-8", "replace")
    except OSError as exc:
        raise InputError(f"The log {file} cannot be read: {exc.strerror}.") from exc
    lines = [_TERMINAL_STYLE.sub("", line) for line in text.splitlines()[-_LOG_LINES:]]
    ours = [line for line in lines if _is_ours(line)]
    return [f"{file}: {len(lines) - len(ours)} lines of another form were left out", *ours]


def _newest_log_lines(folder: Path | None) -> list[str]:
    if folder is None:
        return []
    try:
        found = sorted(folder.glob("lab-agent*.log"), key=lambda file: file.stat().st_mtime)
    except OSError as exc:
        return [f"{folder} cannot be read: {exc.strerror}"]
    return read_log_lines(found[-1]) if found else [f"there is no lab-agent*.log in {folder}"]


def _is_ours(line: str) -> bool:
    if _CONSOLE_LINE.match(line):
        return True
    try:
        found = json.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict) and "event" in found


def _versions() -> dict[str, Any]:
    packages = {each.metadata["Name"]: each.version for each in distributions()}
    return {
        "python": sys.version,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "packages": dict(sorted(packages.items(), key=lambda each: each[0].lower())),
    }


def _schema(settings: Settings) -> dict[str, Any]:
    try:
        check_schema(settings.store.url)
    except LabAgentError as exc:
        return {"known": head_revision(), "problem": mask_url_password(str(exc))}
    return {"known": head_revision(), "problem": None}


def _status(settings: Settings, config: Path | None) -> dict[str, Any]:
    try:
        operation: Operation = asyncio.run(read_status(settings, config))
    except LabAgentError as exc:
        return {"problem": str(exc)}
    return operation_to_json(operation)


def _store_state(config: Path | None, by: str | None) -> dict[str, Any]:
    """Counts by state, and the alerts; only the problem where the store cannot be read."""

    async def work(context: CommandContext) -> tuple[Overview, tuple[Alert, ...]]:
        queries = context.queries
        with suppress(StoreUnreachableError):  # a bundle is made above all where the database is out
            await record(context.store, AuditEntry(at=context.now, action=AuditAction.SUPPORT_BUNDLE_WRITTEN))
        alerts = await queries.alerts(limit=_ALERTS, offset=0)
        return await queries.overview(now=context.now), alerts.items

    try:
        overview, alerts = run_with_store(config, work, by)
    except (StoreError, CryptoError) as exc:
        return {"problem": mask_url_password(str(exc))}
    return {"counts": overview, "alerts": alerts}


def _to_json(value: Any) -> str:
    return json.dumps(to_plain(value), indent=2, ensure_ascii=False) + "\n"


def _redact(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, MASK).replace(json.dumps(secret, ensure_ascii=False)[1:-1], MASK)
    return text


def _write(target: Path, members: Mapping[str, str], now: datetime) -> None:
    """Write the file, readable for its owner alone; one that exists is left as it is."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in members.items():
            content = text.encode("utf-8", "replace")
            member = tarfile.TarInfo(f"lab-agent-support/{name}")
            member.size, member.mtime, member.mode = len(content), int(now.timestamp()), 0o600
            archive.addfile(member, io.BytesIO(content))
    try:
        target.touch(0o600, exist_ok=False)
    except FileExistsError as exc:
        raise InputError(f"{target} exists already; name another file with --to.") from exc
    target.write_bytes(packed.getvalue())
