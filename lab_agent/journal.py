"""The log in systemd's journal, with a field of its own for each thing that a line names: `journalctl LAB_ORDER=…`.

It speaks the native protocol of the journal (systemd: Native Journal Protocol), one datagram for each line. Elsewhere lines go to
standard error, as they do where the journal does not take one.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from typing_extensions import override

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
