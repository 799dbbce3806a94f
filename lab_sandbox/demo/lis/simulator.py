"""The LIS simulator (`lab-sandbox stand-in-lis`): takes orders from one folder and writes results to another.

All its state is in files, so it continues after a restart: `received` (orders), `sent` (a copy of each message) and
`released-stages` (`<requisition>.<stage>` lets a stage continue at once). Over HTTP, HL7 v2 or SQL it works the same way; a
transport moves the contents of the two folders.
"""

from __future__ import annotations

import base64
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from typing_extensions import override

from lab_sandbox.demo.lis.messages import ResultMessage, SimulatorBehaviour, build_messages
from lab_sandbox.demo.lis.transport_files import TEMPORARY_SUFFIX, write_atomically
from lab_sandbox.partner.errors import Json, decode, encode

ORDER_FILE_PATTERN = "*.json"
CANCELLATION_SUFFIX = ".cancel.json"
RECEIVED_FOLDER, SENT_FOLDER, STAGES_FOLDER = "received", "sent", "released-stages"
"""Folders within the simulator's own folder."""


class LisTransport(Protocol):
    """A connection between the two folders and the agent."""

    def run_once(self) -> Iterator[str]:
        """Stores what has arrived and sends what is ready; yields a log line about each message."""
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...


class FolderTransport(LisTransport):
    """The agent uses the folders itself, so there is nothing to move."""

    @override
    def run_once(self) -> Iterator[str]:
        return iter(())

    @override
    def close(self) -> None:
        pass


def outgoing_messages(results: Path) -> Iterator[tuple[Path, Json]]:
    """The messages in the results folder, oldest first, with their documents embedded."""
    files = [file for file in results.glob("*.json") if not file.name.endswith(TEMPORARY_SUFFIX)]
    for file in sorted(files, key=lambda one: (one.stat().st_mtime_ns, one.name)):
        yield file, _embed_documents(decode(file.read_bytes()), results)


def remove_sent_message(file: Path) -> None:
    """Removes a message that was delivered, then the document files beside it: after a crash in between, none is missing."""
    documents = decode(file.read_bytes()).get("documents", ())
    file.unlink()
    for document in documents:
        if "file" in document:
            (file.parent / document["file"]).unlink(missing_ok=True)


def write_cancellation(orders: Path, cancellation: Json) -> None:
    """Writes a cancellation to the orders folder; one that was not processed yet is merged with it."""
    name = f"{cancellation['order']}{CANCELLATION_SUFFIX}"
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


@dataclass(frozen=True, slots=True)
class SimulatorFolders:
    """Where orders come from, where results go, and the simulator's own folder."""

    orders: Path
    results: Path
    state: Path

    @property
    def received_orders(self) -> Path:
        """Orders that were received."""
        return self.state / RECEIVED_FOLDER

    @property
    def sent_messages(self) -> Path:
        """Copies of the messages that were sent."""
        return self.state / SENT_FOLDER

    @property
    def released_stages(self) -> Path:
        """One file for each stage that may continue at once."""
        return self.state / STAGES_FOLDER

    def create(self) -> None:
        """Creates the missing folders."""
        for folder in (self.orders, self.results, self.received_orders, self.sent_messages, self.released_stages):
            folder.mkdir(parents=True, exist_ok=True)


class LisSimulator:
    """A laboratory system on two folders. A stage waits until it is released, at most `stage_timeout` seconds."""

    def __init__(
        self, folders: SimulatorFolders, behaviour: SimulatorBehaviour, stage_timeout: float, clock: Callable[[], datetime]
    ) -> None:
        self._folders = folders
        self._behaviour = behaviour
        self._stage_timeout = stage_timeout
        self._clock = clock
        self._finished: dict[Path, tuple[int, ...]] = {}
        """Orders of which all was sent, and when the files that say what there is to send were written."""

    def run_once(self) -> list[str]:
        """Receives orders and sends the messages that are due; gives a log line about each."""
        return [*self._receive_orders(), *self._send_due_messages()]

    def _receive_orders(self) -> Iterator[str]:
        for file in sorted(self._folders.orders.glob(ORDER_FILE_PATTERN)):
            if file.name.endswith(CANCELLATION_SUFFIX):
                self._merge_cancellation(file)
            file.replace(self._folders.received_orders / file.name)
            yield f"received order {file.stem}"

    def _merge_cancellation(self, cancel: Path) -> None:
        """Adds the lines of an earlier, already received cancellation: a new file lists only the new ones."""
        earlier = self._folders.received_orders / cancel.name
        if earlier.exists():
            old, new = decode(earlier.read_bytes()), decode(cancel.read_bytes())
            write_atomically(cancel.parent, cancel.name, encode({**new, "lines": [*old["lines"], *new["lines"]]}))

    def _send_due_messages(self) -> Iterator[str]:
        for file in sorted(self._folders.received_orders.glob(ORDER_FILE_PATTERN)):
            if file.name.endswith(CANCELLATION_SUFFIX):
                continue
            written = tuple(each.stat().st_mtime_ns for each in (file, _cancellation_of(file)) if each.exists())
            if self._finished.get(file) != written:
                order = _remove_cancelled_lines(decode(file.read_bytes()), _cancellation_of(file))
                if (yield from self._send_order_messages(order)):
                    self._finished[file] = written

    def _send_order_messages(self, order: Json) -> Generator[str, None, bool]:
        """Sends what is due for one order; whether that was all of it.

        A message that is not due yet holds back later ones of its report, not the others.
        """
        waiting: set[str] = set()
        for message in build_messages(order, self._behaviour, self._clock()):
            report = message.body.get("report_id", message.name)
            if report in waiting or (self._folders.sent_messages / message.name).exists():
                continue
            if message.stage and not self._is_stage_due(order, message):
                waiting.add(report)
                continue
            self._write_message(message)
            yield f"sent {message.name}"
        return not waiting

    def _is_stage_due(self, order: Json, message: ResultMessage) -> bool:
        if (self._folders.released_stages / f"{order['requisition']['value']}.{message.stage}").exists():
            return True
        earlier = self._folders.sent_messages.glob(f"{order['key']}-{message.body['report_id']}-*.json")
        last = max((file.stat().st_mtime for file in earlier), default=0.0)
        return time.time() - last >= self._stage_timeout

    def _write_message(self, message: ResultMessage) -> None:
        """Puts a message out. One that was put out before a crash, which nobody has noted, is put out again as it was."""
        files = {**message.documents, message.name: encode(message.body)}
        for name, content in files.items():
            noted = self._folders.sent_messages / f".{name}.unsent"
            if not noted.exists():
                write_atomically(noted.parent, noted.name, content)
            write_atomically(self._folders.results, name, noted.read_bytes())
        for name in files:
            self._folders.sent_messages.joinpath(f".{name}.unsent").replace(self._folders.sent_messages / name)


def _cancellation_of(order: Path) -> Path:
    return order.with_name(f"{order.stem}{CANCELLATION_SUFFIX}")


def _remove_cancelled_lines(order: Json, cancellation: Path) -> Json:
    """The order without the lines that were cancelled later."""
    cancelled = {entry["line"] for entry in decode(cancellation.read_bytes())["lines"]} if cancellation.exists() else set()
    return {**order, "lines": [line for line in order["lines"] if line["key"] not in cancelled]}


def local_now() -> datetime:
    """The current time with this machine's UTC offset."""
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
    """Runs until SIGTERM or SIGINT, one round every `interval` seconds."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    folders.create()
    simulator, transport = LisSimulator(folders, behaviour, stage_timeout, local_now), open_transport()
    print_line(f"orders from {folders.orders}, results to {folders.results}")
    while not stopped.is_set():
        for line in (*simulator.run_once(), *transport.run_once()):
            print_line(line)
        stopped.wait(interval)
    transport.close()
