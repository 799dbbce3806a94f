"""The stand-in at work: takes orders, says what it has to say about each, and remembers in files what it has said.

Nothing is kept in memory: after a restart it goes on where it was. Folders under its own one: `taken` (orders), `written`
(a copy of each message that was dropped) and `bench` (the assistant's hand: `<requisition>.<stage>` lets a stage go on at once).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from lab_sandbox.demo.lis.drop import drop
from lab_sandbox.demo.lis.messages import Habits, Message, messages
from lab_sandbox.demo.lis.plain import plain
from lab_sandbox.partner.plain_json import Json, decode, encode

ORDER_FILES = "*.json"
CANCEL = ".cancel.json"


@dataclass(frozen=True, slots=True)
class Folders:
    """Where orders come from, where results go, and the stand-in's own folder."""

    orders: Path
    results: Path
    own: Path

    @property
    def taken(self) -> Path:
        """Orders that were taken."""
        return self.own / "taken"

    @property
    def written(self) -> Path:
        """Copies of what was dropped."""
        return self.own / "written"

    @property
    def bench(self) -> Path:
        """Where stages are let go."""
        return self.own / "bench"

    def make(self) -> None:
        """Makes those that are not there."""
        for folder in (self.orders, self.results, self.taken, self.written, self.bench):
            folder.mkdir(parents=True, exist_ok=True)


class StandIn:
    """A laboratory system on two folders. A stage waits for the bench, at most `patience` seconds."""

    def __init__(self, folders: Folders, habits: Habits, patience: float, clock: Callable[[], datetime]) -> None:
        self._folders = folders
        self._habits = habits
        self._patience = patience
        self._clock = clock

    def turn(self) -> list[str]:
        """One round; gives a line about each thing that was done."""
        return [*self._take_all(), *self._say_all()]

    def _take_all(self) -> Iterator[str]:
        for file in sorted(self._folders.orders.glob(ORDER_FILES)):
            if file.name.endswith(CANCEL):
                self._join_earlier(file)
            file.replace(self._folders.taken / file.name)
            yield f"took order {file.stem}"

    def _join_earlier(self, cancel: Path) -> None:
        """A cancel file says what is new; what an earlier one said that was taken already stays true."""
        earlier = self._folders.taken / cancel.name
        if earlier.exists():
            told, new = decode(earlier.read_bytes()), decode(cancel.read_bytes())
            drop(cancel.parent, cancel.name, encode({**new, "lines": [*told["lines"], *new["lines"]]}))

    def _say_all(self) -> Iterator[str]:
        for file in sorted(self._folders.taken.glob(ORDER_FILES)):
            if not file.name.endswith(CANCEL):
                yield from self._say(self._without_cancelled(decode(file.read_bytes())))

    def _without_cancelled(self, order: Json) -> Json:
        """The order without the lines that a later cancel file took back."""
        cancel = self._folders.taken / f"{order['key']}{CANCEL}"
        gone = {entry["line"] for entry in decode(cancel.read_bytes())["lines"]} if cancel.exists() else set()
        return {**order, "lines": [line for line in order["lines"] if line["key"] not in gone]}

    def _say(self, order: Json) -> Iterator[str]:
        """What is due about one order; what is not due yet stops what comes after it about the same line, not the others."""
        waiting: set[str] = set()
        for said in messages(order, self._habits, self._clock()):
            message = plain(said) if self._habits.plain else said
            report = message.body.get("report_id", message.name)
            if report in waiting or (self._folders.written / message.name).exists():
                continue
            if message.stage and not self._may_go_on(order, message):
                waiting.add(report)
                continue
            self._drop(message)
            yield f"wrote {message.name}"

    def _may_go_on(self, order: Json, message: Message) -> bool:
        if (self._folders.bench / f"{order['requisition']['value']}.{message.stage}").exists():
            return True
        earlier = self._folders.written.glob(f"{order['key']}-{message.body['report_id']}-*.json")
        last = max((file.stat().st_mtime for file in earlier), default=0.0)
        return time.time() - last >= self._patience

    def _drop(self, message: Message) -> None:
        files = {**message.documents, message.name: encode(message.body)}
        for folder in (self._folders.results, self._folders.written):
            for name, content in files.items():
                drop(folder, name, content)
