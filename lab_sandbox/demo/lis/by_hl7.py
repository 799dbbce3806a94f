"""The stand-in by HL7 v2 over MLLP: takes orders on a port of its own, and sends results to the agent until they are taken."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any, BinaryIO

import hl7  # type: ignore[import-untyped]

from lab_sandbox.demo.lis.drop import write_atomically
from lab_sandbox.demo.lis.hl7_text import build_acknowledgement, build_result, parse_order
from lab_sandbox.demo.lis.link import outgoing_messages, remove_sent_message, write_cancellation
from lab_sandbox.demo.lis.stand_in import SimulatorFolders
from lab_sandbox.partner.plain_json import encode

_START_BLOCK, _END_BLOCK = b"\x0b", b"\x1c\r"
_CONNECT_TIMEOUT = 10.0


class Hl7Transport:
    """Listens on `port` for orders, and connects to the agent's port `agent` for results."""

    def __init__(self, folders: SimulatorFolders, port: int, agent_port: int) -> None:
        self._folders = folders
        self._agent_port = agent_port
        self._log_lines: list[str] = []
        self._lock = threading.Lock()
        self._server = _MllpServer(("127.0.0.1", port), _handler_class(self))
        threading.Thread(target=self._server.serve_forever, name="orders by HL7", daemon=True).start()

    def run_once(self) -> Iterator[str]:
        """Tells of what came, and sends what is to go; the first that is not taken waits, and what is behind it too."""
        while self._log_lines:
            yield self._log_lines.pop(0)
        waiting = list(outgoing_messages(self._folders.results))
        if not waiting:
            return
        try:
            with (
                socket.create_connection(("127.0.0.1", self._agent_port), _CONNECT_TIMEOUT) as connection,
                connection.makefile("rwb") as way,
            ):
                for file, message in waiting:
                    text = build_result(message, file.stem, datetime.now().astimezone())
                    answer = _send_and_read_ack(way, text.encode())
                    if answer is None or str(answer.segment("MSA")[1]) != "AA" or str(answer.segment("MSA")[2]) != file.stem:
                        yield f"{file.name}: not taken ({answer.segment('MSA')[1] if answer else 'no answer'})"
                        return
                    remove_sent_message(file)
                    yield f"sent {file.name}"
        except OSError as exc:
            yield f"results not sent: {type(exc).__name__}"

    def close(self) -> None:
        """Ends listening."""
        self._server.shutdown()
        self._server.server_close()

    def receive(self, data: bytes) -> bytes:
        """Takes an order or a withdrawal; a repeat is told by MSH-10. Gives the answer."""
        message = hl7.parse(data.decode())
        with self._lock:
            self._store_message(message)
        return build_acknowledgement(message, datetime.now().astimezone()).encode()

    def _store_message(self, message: hl7.Message) -> None:
        orcs = message.segments("ORC")
        if str(orcs[0][1]) == "CA":
            self._store_cancellation([str(orc[2]) for orc in orcs])
            return
        order = parse_order(message)
        name = f"{order['key']}.json"
        if not any((folder / name).exists() for folder in (self._folders.orders, self._folders.received_orders)):
            write_atomically(self._folders.orders, name, encode(order))
            self._log_lines.append("was sent an order")

    def _store_cancellation(self, lines: list[str]) -> None:
        """A withdrawal names lines; their order is found by them."""
        for folder in (self._folders.orders, self._folders.received_orders):
            for file in folder.glob("R*.json"):
                if not file.name.endswith(".cancel.json") and lines[0].encode() in file.read_bytes():
                    entries = [{"line": line, "reason": "withdrawn"} for line in lines]
                    write_cancellation(self._folders.orders, {"kind": "cancel", "order": file.stem, "lines": entries})
                    self._log_lines.append("was sent a withdrawal")
                    return


class _MllpServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def _handler_class(transport: Hl7Transport) -> type[socketserver.StreamRequestHandler]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while (data := _read_frame(self.rfile)) is not None:
                self.wfile.write(_START_BLOCK + transport.receive(data) + _END_BLOCK)

    return Handler


def _send_and_read_ack(stream: Any, message: bytes) -> hl7.Message | None:
    stream.write(_START_BLOCK + message + _END_BLOCK)
    stream.flush()
    answer = _read_frame(stream)
    return None if answer is None else hl7.parse(answer.decode())


def _read_frame(stream: BinaryIO | Any) -> bytes | None:
    """One message; None at the end of the stream."""
    data = bytearray()
    while not data.endswith(_END_BLOCK):
        byte = stream.read(1)
        if not byte:
            return None
        data += byte
    return bytes(data).removeprefix(_START_BLOCK).removesuffix(_END_BLOCK)
