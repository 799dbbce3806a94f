"""The stand-in by HL7 v2 over MLLP: takes orders on a port of its own, and sends results to the agent until they are taken."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any, BinaryIO

import hl7  # type: ignore[import-untyped]

from lab_sandbox.demo.lis.drop import drop
from lab_sandbox.demo.lis.hl7_text import acknowledgement, order_of, result_of
from lab_sandbox.demo.lis.link import cancel, carried, outgoing
from lab_sandbox.demo.lis.stand_in import Folders
from lab_sandbox.partner.plain_json import encode

_START, _END = b"\x0b", b"\x1c\r"
_PATIENCE = 10.0


class Hl7Link:
    """Listens on `port` for orders, and connects to the agent's port `agent` for results."""

    def __init__(self, folders: Folders, port: int, agent: int) -> None:
        self._folders = folders
        self._agent = agent
        self._took: list[str] = []
        self._one_at_a_time = threading.Lock()
        self._server = _Server(("127.0.0.1", port), _handler(self))
        threading.Thread(target=self._server.serve_forever, name="orders by HL7", daemon=True).start()

    def turn(self) -> Iterator[str]:
        """Tells of what came, and sends what is to go; the first that is not taken waits, and what is behind it too."""
        while self._took:
            yield self._took.pop(0)
        waiting = list(outgoing(self._folders.results))
        if not waiting:
            return
        try:
            with socket.create_connection(("127.0.0.1", self._agent), _PATIENCE) as connection, connection.makefile("rwb") as way:
                for file, message in waiting:
                    text = result_of(message, file.stem, datetime.now().astimezone())
                    answer = _asked(way, text.encode())
                    if answer is None or str(answer.segment("MSA")[1]) != "AA" or str(answer.segment("MSA")[2]) != file.stem:
                        yield f"{file.name}: not taken ({answer.segment('MSA')[1] if answer else 'no answer'})"
                        return
                    carried(file)
                    yield f"sent {file.name}"
        except OSError as exc:
            yield f"results not sent: {type(exc).__name__}"

    def close(self) -> None:
        """Ends listening."""
        self._server.shutdown()
        self._server.server_close()

    def take(self, data: bytes) -> bytes:
        """Takes an order or a withdrawal; a repeat is told by MSH-10. Gives the answer."""
        message = hl7.parse(data.decode())
        with self._one_at_a_time:
            self._keep(message)
        return acknowledgement(message, datetime.now().astimezone()).encode()

    def _keep(self, message: hl7.Message) -> None:
        orcs = message.segments("ORC")
        if str(orcs[0][1]) == "CA":
            self._cancel([str(orc[2]) for orc in orcs])
            return
        order = order_of(message)
        name = f"{order['key']}.json"
        if not any((folder / name).exists() for folder in (self._folders.orders, self._folders.taken)):
            drop(self._folders.orders, name, encode(order))
            self._took.append("was sent an order")

    def _cancel(self, lines: list[str]) -> None:
        """A withdrawal names lines; their order is found by them."""
        for folder in (self._folders.orders, self._folders.taken):
            for file in folder.glob("R*.json"):
                if not file.name.endswith(".cancel.json") and lines[0].encode() in file.read_bytes():
                    entries = [{"line": line, "reason": "withdrawn"} for line in lines]
                    cancel(self._folders.orders, {"kind": "cancel", "order": file.stem, "lines": entries})
                    self._took.append("was sent a withdrawal")
                    return


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def _handler(link: Hl7Link) -> type[socketserver.StreamRequestHandler]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while (data := _read(self.rfile)) is not None:
                self.wfile.write(_START + link.take(data) + _END)

    return Handler


def _asked(way: Any, message: bytes) -> hl7.Message | None:
    way.write(_START + message + _END)
    way.flush()
    answer = _read(way)
    return None if answer is None else hl7.parse(answer.decode())


def _read(stream: BinaryIO | Any) -> bytes | None:
    """One message; None at the end of the stream."""
    data = bytearray()
    while not data.endswith(_END):
        byte = stream.read(1)
        if not byte:
            return None
        data += byte
    return bytes(data).removeprefix(_START).removesuffix(_END)
