"""The log: structlog for our lines and those of libraries, one redaction for both, and systemd's journal.

The redaction works by allow-list: a field that is not listed here, or is not of a harmless type, is dropped and its name shown
under `dropped`, so that the gap is visible and nothing leaks (law 7). Of an exception its type is kept, and the message of our
own errors, which are written for it. A library's line is cut to the logger's name, the level and the template of its message: the
arguments may hold addresses and payloads.

In the journal each thing that a line names has a field of its own (`journalctl LAB_ORDER=…`). One datagram a line goes there by
its native protocol; elsewhere, and where the journal does not take one, lines go to standard error.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, TextIO

import structlog
from typing_extensions import override

from lab_agent.settings.groups import LoggingSettings
from lab_agent.settings.introspection import mask_url_password
from lab_agent.shared.errors import LabAgentError
from lab_agent.shared.text import escape_unprintable

SOCKET = "/run/systemd/journal/socket"
_PREFIX = "LAB_"
_SAID_OTHERWISE = frozenset({"event", "level", "timestamp"})
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
"""The severities of syslog."""


def is_journal(descriptor: int, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether systemd has connected this file to its journal."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


class JournalHandler(logging.StreamHandler[Any]):
    """Sends each line with its fields, which the processor `keep_fields` has seen."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._fields: Mapping[str, Any] = {}

    def keep_fields(self, _logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Keep the fields of the line that is being formatted: the handler's lock is held meanwhile."""
        self._fields = dict(line)
        return line

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self._fields = {}
        text = self.format(record)
        try:
            self._socket.sendto(encode_fields(text, record.levelno, self._fields), SOCKET)
        except OSError:  # a journal that restarts, or a line beyond the size of a datagram
            self.stream.write(text + self.terminator)
            self.flush()

    @override
    def close(self) -> None:
        self._socket.close()
        super().close()


def encode_fields(text: str, level: int, fields: Mapping[str, Any]) -> bytes:
    """The datagram of one line; an item of a list is a field of its own."""
    priority = next((number for least, number in _PRIORITIES if level >= least), 7)
    whole = [("MESSAGE", text), ("PRIORITY", str(priority)), *_own_fields(fields)]
    return b"".join(_encode_field(name, value) for name, value in whole)


def _own_fields(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        if name not in _SAID_OTHERWISE and value is not None:
            items = value if isinstance(value, list | tuple) else (value,)
            yield from ((f"{_PREFIX}{name.upper()}", str(each)) for each in items)


def _encode_field(name: str, value: str) -> bytes:
    """A value with line feeds is preceded by its length in bytes, 64 bits, little-endian."""
    data = value.encode("utf-8", "replace")
    if b"\n" not in data:
        return name.encode() + b"=" + data + b"\n"
    return name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n"


FIELDS = frozenset(
    """
    action adapter address age alert attempt attempts baskets by catalogues changed code contract count counterparty decision
    delay digests document documents dropped due effect elapsed endpoint error event fault file finding former found
    generation grant groups held host id interval item items job kept key kind lease level limit line lines listening logger
    max_allowed_packet max_document_bytes max_unfinished_bytes message method mode needs_restart next number observations of
    opened operation order orders origin outage outcome owner page path paths pool port problem problems purged queues reason
    refused released report reports resource resource_type rule rules schema search seconds sequence severity size source
    state states status step stopped task tick timestamp unreadable until version versions waiting warning worker
    """.split()  # noqa: SIM905 — a page of quotes would hide the words
)
"""Names that a field of a log line may have."""
_MAX_TEXT_LENGTH = 500
_STDERR = 2
_QUERY = re.compile(r"(https?://[^\s?#]*)\?[^\s\"']*")
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9+/._~=-]{8,}", re.IGNORECASE)
_PLAIN_TEXT = re.compile(r"[\w.+:-]*|[\w.+/-]*", re.ASCII)
"""One word, or a path: no address (`://`), no space after a `Bearer`, nothing unprintable. Most texts of most lines are such."""
_SAFE_TYPES = (bool, int, float, Decimal, datetime, timedelta, Enum, PurePath)
_QUIET_LOGGERS = ("aiohttp", "apscheduler", "asyncio", "httpx", "httpcore", "alembic", "sqlalchemy", "uvicorn.access")


def configure(settings: LoggingSettings, stream: TextIO | None = None) -> None:
    """Configure the log of this process, called once by a program, never on import.

    It goes to standard error; where that is systemd's journal, to the journal with its fields.
    """
    chain = _processors()
    structlog.configure(
        processors=[*chain, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    is_in_journal = stream is None and is_journal(_STDERR)
    handler = JournalHandler() if is_in_journal else logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_strip_library_record, *chain],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                redact,
                *([handler.keep_fields] if isinstance(handler, JournalHandler) else []),
                _renderer(settings, handler.stream),
            ],
        )
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        if isinstance(old, JournalHandler):
            old.close()
    root.addHandler(handler)
    root.setLevel(settings.level.upper())
    for name in _QUIET_LOGGERS:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    # A task that takes longer than its interval is normal: the next run starts after it has ended.
    logging.getLogger("apscheduler.scheduler").setLevel(logging.ERROR)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Give a logger; its lines carry `action=` and fields of `FIELDS`."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


def redact(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Keep what the allow-list knows, and name what was dropped."""
    kept: dict[str, Any] = {}
    dropped = []
    for name, value in line.items():
        safe = _safe_value(value) if name in FIELDS else None
        if name == "exc_info":
            kept |= _exception_fields(value)
        elif safe is None and value is not None:
            dropped.append(name)
        else:
            kept[name] = safe
    return kept | ({"dropped": sorted(dropped)} if dropped else {})


def describe_error(error: BaseException) -> str:
    """Give an exception in one safe sentence: type and message of our own errors, only the type of others."""
    name = type(error).__name__
    return f"{name}: {error}" if isinstance(error, LabAgentError) else name


def _processors() -> list[Callable[[Any, str, MutableMapping[str, Any]], Any]]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _renderer(settings: LoggingSettings, stream: TextIO) -> Callable[..., str | bytes]:
    if settings.format == "json":
        return structlog.processors.JSONRenderer(default=str, ensure_ascii=False)
    return structlog.dev.ConsoleRenderer(colors=stream.isatty(), sort_keys=False)


def _strip_library_record(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Cut a library's line to the template of its message, without the arguments."""
    record: logging.LogRecord = line["_record"]
    line["event"] = str(record.msg) if isinstance(record.msg, str) and not _looks_like_data(record) else "(not shown)"
    line.pop("positional_args", None)
    return line


def _looks_like_data(record: logging.LogRecord) -> bool:
    """Whether a message without arguments may hold data that the library formatted into it: it is long, or not plain."""
    message = str(record.msg)
    return not record.args and (len(message) > 200 or "://" in message or "{" in message or "?" in message)


def _safe_value(value: Any) -> Any:
    """Give the value if it is of a harmless type, else None."""
    if value is None or isinstance(value, _SAFE_TYPES):
        return str(value) if isinstance(value, PurePath | timedelta | Enum | Decimal) else _format_datetime(value)
    if isinstance(value, str):
        return _mask_text(value)
    if isinstance(value, BaseException):
        return _mask_text(describe_error(value))
    if isinstance(value, list | tuple | set | frozenset):
        return list(_safe_values(value))
    return None


def _mask_text(text: str) -> str:
    """Take query strings, passwords and credentials out of a text, escape what could steer a terminal, and limit its length."""
    if len(text) <= _MAX_TEXT_LENGTH and _PLAIN_TEXT.fullmatch(text):
        return text
    text = escape_unprintable(_QUERY.sub(r"\1?…", _BEARER.sub(r"\1 …", mask_url_password(text))))
    return text if len(text) <= _MAX_TEXT_LENGTH else f"{text[:_MAX_TEXT_LENGTH]}…"


def _format_datetime(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _safe_values(values: Any) -> Iterator[Any]:
    return (safe for value in values if (safe := _safe_value(value)) is not None)


def _exception_fields(value: Any) -> dict[str, str]:
    error = sys.exc_info()[1] if value is True else value[1] if isinstance(value, tuple) else value
    return {"error": _mask_text(describe_error(error))} if isinstance(error, BaseException) else {}
