"""The stand-in at work: takes orders, says what it has to say about each, and remembers in files what it has said.

Nothing is kept in memory: after a restart it goes on where it was. Folders under its own one: `taken` (orders), `written`
(a copy of each message that was dropped) and `bench` (the assistant's hand: `<requisition>.<stage>` lets a stage go on at once).

How the stand-in is reached: by its two folders alone, or by a link that carries what lies in them over another way.

Whatever the way, the stand-in itself works on folders: a link puts orders into the one and takes results out of the other.

The stand-in as a process: `lab-sandbox stand-in-lis`.
"""

from __future__ import annotations

import base64
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from lab_sandbox.demo.lis.messages import ResultMessage, SimulatorBehaviour, build_messages
from lab_sandbox.demo.lis.transport_files import TEMPORARY_SUFFIX, write_atomically
from lab_sandbox.demo.lis.value_fallbacks import apply_value_fallbacks
from lab_sandbox.partner.errors import Json, decode, encode


class LisTransport(Protocol):
    """A way to the agent."""

    def run_once(self) -> Iterator[str]:
        """One round: takes what has come, brings what is to go; gives a line about each thing."""
        ...

    def close(self) -> None:
        """Ends it."""
        ...


class FolderTransport:
    """The agent uses the folders itself."""

    def run_once(self) -> Iterator[str]:
        """Nothing to carry."""
        return iter(())

    def close(self) -> None:
        """Nothing to end."""


def outgoing_messages(results: Path) -> Iterator[tuple[Path, Json]]:
    """The messages in the folder for results, oldest first, their documents within them."""
    files = [file for file in results.glob("*.json") if not file.name.endswith(TEMPORARY_SUFFIX)]
    for file in sorted(files, key=lambda one: (one.stat().st_mtime_ns, one.name)):
        yield file, _embed_documents(decode(file.read_bytes()), results)


def remove_sent_message(file: Path) -> None:
    """Removes a message that has arrived, and the documents that lay beside it."""
    for document in decode(file.read_bytes()).get("documents", ()):
        if "file" in document:
            (file.parent / document["file"]).unlink(missing_ok=True)
    file.unlink()


def write_cancellation(orders: Path, cancellation: Json) -> None:
    """Puts a withdrawal into the folder for orders; one that was not taken yet is joined."""
    name = f"{cancellation['order']}.cancel.json"
    earlier = decode((orders / name).read_bytes())["lines"] if (orders / name).exists() else []
    write_atomically(orders, name, encode({**cancellation, "lines": [*earlier, *cancellation["lines"]]}))


def _embed_documents(message: Json, results: Path) -> Json:
    documents = [_embed_content(one, results) for one in message.get("documents", ())]
    return {**message, "documents": documents} if documents else message


def _embed_content(document: Json, results: Path) -> Json:
    if "file" not in document:
        return document
    rest = {key: value for key, value in document.items() if key != "file"}
    return {**rest, "content": base64.b64encode((results / document["file"]).read_bytes()).decode("ascii")}


ORDER_FILE_PATTERN = "*.json"
CANCELLATION_SUFFIX = ".cancel.json"


@dataclass(frozen=True, slots=True)
class SimulatorFolders:
    """Where orders come from, where results go, and the stand-in's own folder."""

    orders: Path
    results: Path
    state: Path

    @property
    def received_orders(self) -> Path:
        """Orders that were taken."""
        return self.state / "taken"

    @property
    def sent_messages(self) -> Path:
        """Copies of what was dropped."""
        return self.state / "written"

    @property
    def released_stages(self) -> Path:
        """Where stages are let go."""
        return self.state / "bench"

    def create(self) -> None:
        """Makes those that are not there."""
        for folder in (self.orders, self.results, self.received_orders, self.sent_messages, self.released_stages):
            folder.mkdir(parents=True, exist_ok=True)


class LisSimulator:
    """A laboratory system on two folders. A stage waits for the bench, at most `patience` seconds."""

    def __init__(
        self, folders: SimulatorFolders, behaviour: SimulatorBehaviour, stage_timeout: float, clock: Callable[[], datetime]
    ) -> None:
        self._folders = folders
        self._behaviour = behaviour
        self._stage_timeout = stage_timeout
        self._clock = clock

    def run_once(self) -> list[str]:
        """One round; gives a line about each thing that was done."""
        return [*self._receive_orders(), *self._send_due_messages()]

    def _receive_orders(self) -> Iterator[str]:
        for file in sorted(self._folders.orders.glob(ORDER_FILE_PATTERN)):
            if file.name.endswith(CANCELLATION_SUFFIX):
                self._merge_cancellation(file)
            file.replace(self._folders.received_orders / file.name)
            yield f"took order {file.stem}"

    def _merge_cancellation(self, cancel: Path) -> None:
        """A cancel file says what is new; what an earlier one said that was taken already stays true."""
        earlier = self._folders.received_orders / cancel.name
        if earlier.exists():
            told, new = decode(earlier.read_bytes()), decode(cancel.read_bytes())
            write_atomically(cancel.parent, cancel.name, encode({**new, "lines": [*told["lines"], *new["lines"]]}))

    def _send_due_messages(self) -> Iterator[str]:
        for file in sorted(self._folders.received_orders.glob(ORDER_FILE_PATTERN)):
            if not file.name.endswith(CANCELLATION_SUFFIX):
                yield from self._send_order_messages(self._remove_cancelled_lines(decode(file.read_bytes())))

    def _remove_cancelled_lines(self, order: Json) -> Json:
        """The order without the lines that a later cancel file took back."""
        cancel = self._folders.received_orders / f"{order['key']}{CANCELLATION_SUFFIX}"
        gone = {entry["line"] for entry in decode(cancel.read_bytes())["lines"]} if cancel.exists() else set()
        return {**order, "lines": [line for line in order["lines"] if line["key"] not in gone]}

    def _send_order_messages(self, order: Json) -> Iterator[str]:
        """What is due about one order; what is not due yet stops what comes after it about the same line, not the others."""
        waiting: set[str] = set()
        for said in build_messages(order, self._behaviour, self._clock()):
            message = apply_value_fallbacks(said) if self._behaviour.use_value_fallbacks else said
            report = message.body.get("report_id", message.name)
            if report in waiting or (self._folders.sent_messages / message.name).exists():
                continue
            if message.stage and not self._is_stage_due(order, message):
                waiting.add(report)
                continue
            self._write_message(message)
            yield f"wrote {message.name}"

    def _is_stage_due(self, order: Json, message: ResultMessage) -> bool:
        if (self._folders.released_stages / f"{order['requisition']['value']}.{message.stage}").exists():
            return True
        earlier = self._folders.sent_messages.glob(f"{order['key']}-{message.body['report_id']}-*.json")
        last = max((file.stat().st_mtime for file in earlier), default=0.0)
        return time.time() - last >= self._stage_timeout

    def _write_message(self, message: ResultMessage) -> None:
        files = {**message.documents, message.name: encode(message.body)}
        for folder in (self._folders.results, self._folders.sent_messages):
            for name, content in files.items():
                write_atomically(folder, name, content)


def local_now() -> datetime:
    """The time with this machine's offset."""
    return datetime.now().astimezone()


def run_simulator(
    folders: SimulatorFolders,
    behaviour: SimulatorBehaviour,
    open_transport: Callable[[], LisTransport] = FolderTransport,
    *,
    interval: float,
    stage_timeout: float,
    print_line: Callable[[str], None],
) -> None:
    """Works until SIGTERM or SIGINT, a round every `interval` seconds."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    folders.create()
    stand_in, way = LisSimulator(folders, behaviour, stage_timeout, local_now), open_transport()
    print_line(f"working on {folders.orders} and {folders.results}")
    while not ended.is_set():
        for done in (*stand_in.run_once(), *way.run_once()):
            print_line(done)
        ended.wait(interval)
    way.close()
