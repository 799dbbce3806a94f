"""What was sent of each order, and what the LIS answered: on disk, so that both outlive this process (laws 2 and 3).

Each message of an order has a key (the order's, or a line's) with which its MSH-10 begins, so that an acknowledgement finds its
order however late it comes, on whichever connection, in whichever process. Nothing here names a patient. All methods of
`SentMessageLog` block.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from lab_agent.lis.hl7v2.acks import Ack
from lab_agent.shared.atomic_file import write_atomically
from lab_agent.shared.ids import LineKey, OrderKey

KEY_LENGTH = 16
_MESSAGE_KEY = re.compile(f"[A-Z2-7]{{{KEY_LENGTH}}}")
_MESSAGE_SUFFIX = ".message.json"
_ORDER_SUFFIX = ".order.json"
_DAY_SECONDS = 86400.0


class Answer(BaseModel):
    """The final answer to a message: whether the LIS accepted it, and what it said of the lines."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    accepted: bool
    accessions: tuple[tuple[str, str], ...] = ()
    rejected_lines: tuple[tuple[str, str], ...] = ()
    unnamed_lines: tuple[str, ...] = ()
    """Lines that the answer passes over although it names others."""


class SentMessage(BaseModel):
    """A message of an order: its attempts by MSH-10, each with the final answer, or None while there is none.

    `was_asked`: the agent was told that its outcome is unknown, so that sending it again is somebody's decision.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    order: str
    lines: tuple[str, ...]
    attempts: dict[str, Answer | None] = {}
    was_asked: bool = False

    @property
    def answer(self) -> Answer | None:
        """The answer that counts: yes to any attempt, else what was said to the last one."""
        answers = list(self.attempts.values())
        return next((each for each in answers if each is not None and each.accepted), answers[-1] if answers else None)

    @property
    def is_accepted(self) -> bool:
        """Whether the LIS accepted it."""
        return self.answer is not None and self.answer.accepted


_DAMAGED = SentMessage(order="", lines=(), attempts={"": None})


class SentOrder(BaseModel):
    """The keys of the messages that make up an order."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    messages: tuple[str, ...]


def build_answer(ack: Ack, accepted: bool, lines: Collection[str]) -> Answer:
    """Make the answer that is kept of an acknowledgement; `lines` are those of the message."""
    return Answer(
        accepted=accepted,
        accessions=ack.accessions,
        rejected_lines=ack.rejected_lines,
        unnamed_lines=ack.unnamed_lines(lines) if accepted else (),
    )


class SentMessageLog:
    """The folder `sent`: a file for each message and one for each order."""

    def __init__(self, folder: Path, keep_days: int) -> None:
        self._folder = folder / "sent"
        self._keep_days = keep_days
        self._lock = threading.Lock()

    def open(self) -> None:
        """Create the folder, and delete what is too old."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.purge()

    def purge(self) -> None:
        """Delete the files that were not written to for `keep_days`."""
        limit = time.time() - self._keep_days * _DAY_SECONDS
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < limit:
                    path.unlink()

    def messages(self, order: OrderKey) -> dict[str, SentMessage | None] | None:
        """The messages of an order by key, None for one that was never sent; None if nothing of the order was."""
        found = _read(SentOrder, self._folder / f"{order}{_ORDER_SUFFIX}")
        return None if found is None else {key: self.message(key) for key in found.messages}

    def message(self, key: str) -> SentMessage | None:
        """A message; None if it was never sent. One whose file is damaged has an attempt without an answer."""
        path = self._message_path(key)
        found = _read(SentMessage, path)
        return _DAMAGED if found is None and path.exists() else found

    def plan(self, order: OrderKey, keys: Iterable[str]) -> None:
        """Record of which messages an order consists, before the first is sent. Raises `OSError`."""
        planned, path = SentOrder(messages=tuple(keys)), self._folder / f"{order}{_ORDER_SUFFIX}"
        if _read(SentOrder, path) != planned:
            write_atomically(path, planned.model_dump_json().encode())

    def record_attempt(self, key: str, order: OrderKey, lines: Iterable[str], control_id: str) -> None:
        """Record that a message is about to be sent under `control_id`. Raises `OSError`."""
        with self._lock:
            known = self.message(key)
            attempts = {**(known.attempts if known else {})}
            last = attempts.pop(control_id, None)  # last in the order of attempts; a yes stays
            attempts[control_id] = last if last is not None and last.accepted else None
            self._write(key, SentMessage(order=order, lines=tuple(lines), attempts=attempts))

    def record_answer(self, ack: Ack, accepted: bool) -> SentMessage | None:
        """Record the final answer to an attempt; None if no message has that MSH-10. Raises `OSError`."""
        key = message_key(ack.control_id)
        with self._lock:
            known = self.message(key) if key else None
            if key is None or known is None or ack.control_id not in known.attempts:
                return None
            answer = build_answer(ack, accepted, known.lines)
            answered = known.model_copy(update={"attempts": {**known.attempts, ack.control_id: answer}})
            if answered != known:
                self._write(key, answered)
            return answered

    def mark_asked(self, messages: Mapping[str, SentMessage | None]) -> None:
        """Record that the agent was told of unknown outcomes. Raises `OSError`."""
        with self._lock:
            for key, message in messages.items():
                if message is not None and message.answer is None and not message.was_asked:
                    self._write(key, message.model_copy(update={"was_asked": True}))

    def forget_lines(self, order: OrderKey, lines: Collection[LineKey]) -> None:
        """Forget the messages of single lines that were withdrawn: if a line comes back, it is sent anew. Raises `OSError`."""
        with self._lock:
            keys = list(self.messages(order) or {})
            if forgotten := set(keys) & set(lines):
                self.plan(order, (key for key in keys if key not in forgotten))
            for key in forgotten:
                self._message_path(key).unlink(missing_ok=True)

    def _write(self, key: str, message: SentMessage) -> None:
        write_atomically(self._message_path(key), message.model_dump_json().encode())

    def _message_path(self, key: str) -> Path:
        return self._folder / f"{key}{_MESSAGE_SUFFIX}"


def message_key(control_id: str) -> str | None:
    """The key with which the MSH-10 of an order's message begins; None if it is not one of ours."""
    return control_id[:KEY_LENGTH] if _MESSAGE_KEY.match(control_id) else None


ModelT = TypeVar("ModelT", bound=BaseModel)


def _read(model: type[ModelT], path: Path) -> ModelT | None:
    """Read a file; None if it is missing or damaged."""
    try:
        return model.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
