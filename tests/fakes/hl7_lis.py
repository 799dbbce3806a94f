"""A laboratory system that speaks HL7 v2: python-hl7 reads, plain text writes. It knows nothing of our code.

It takes orders and tells repeats by its habit (`msh10`, `placer` or `none`), and gives each result until it is acknowledged.
"""

import asyncio
import contextlib
import itertools
from base64 import b64encode
from dataclasses import dataclass, field

import hl7

from lab_agent.lis.lab_messages import LabMessage, LabRejection, LabReport

VT, FS, CR = b"\x0b", b"\x1c", b"\r"


async def frames(reader):
    while True:
        try:
            whole = await reader.readuntil(FS + CR)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        yield whole.lstrip(b"\r\n").removeprefix(VT).removesuffix(FS + CR)


def escape(text: str) -> str:
    for char, name in (("\\", "E"), ("|", "F"), ("^", "S"), ("&", "T"), ("~", "R")):
        text = text.replace(char, "\0" + name + "\0") if char != "\\" else text.replace(char, "\0E\0")
    return text.replace("\0", "\\").replace("\r", "\\X0D\\").replace("\n", "\\X0A\\")


@dataclass
class Hl7Lis:
    deduplicate_by: str = "msh10"
    silent: bool = False
    """It takes orders and does not answer."""
    answer_code: str = "AA"
    extra_segments: str = ""
    """Segments that its answers carry."""
    received_ids: list[str] = field(default_factory=list)
    accepted_ids: list[str] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    cancelled_lines: set[str] = field(default_factory=set)
    unacknowledged: list[tuple[str, bytes]] = field(default_factory=list)
    known_keys: set[str] = field(default_factory=set)
    numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    tasks: "set[asyncio.Task[None]]" = field(default_factory=set)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    bad_ids: set[str] = field(default_factory=set)
    given_bad_ids: set[str] = field(default_factory=set)
    """Bad results that were given: once, on whichever connection."""
    refused_ids: set[str] = field(default_factory=set)
    state: str = "working"
    port: int = 0
    server: asyncio.Server | None = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    async def listen(self, port: int = 0) -> int:
        self.server = await asyncio.start_server(self.on_connection, "127.0.0.1", port)
        self.port = int(self.server.sockets[0].getsockname()[1])
        return self.port

    async def set_state(self, state: str) -> None:
        """Be working, unreachable, silent (an order is taken, and the connection breaks) or refusing from now on."""
        was, self.state = self.state, state
        if state == "unreachable":
            if self.server:
                self.server.close()
            for writer in self.writers:
                writer.close()
        elif was == "unreachable" and self.server:
            await self.listen(self.port)

    def connect(self, port: int) -> None:
        self.tasks.add(asyncio.create_task(self.keep_connected(port)))

    async def keep_connected(self, port):
        while True:
            with contextlib.suppress(OSError):
                if self.state == "unreachable":
                    raise ConnectionRefusedError
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                self.writers.append(writer)
                await self.serve_connection(reader, writer)
            await asyncio.sleep(0.01)

    def on_connection(self, reader, writer):
        self.writers.append(writer)
        if self.state == "unreachable":
            writer.close()
        elif self.server.is_serving():
            self.tasks.add(asyncio.create_task(self.serve_connection(reader, writer)))

    async def serve_connection(self, reader, writer):
        giving = asyncio.create_task(self.send_results(writer))
        self.tasks.add(giving)
        try:
            async for message in frames(reader):
                await self.handle_message(message, writer)
        except ConnectionError:
            pass
        finally:
            giving.cancel()
            writer.close()

    async def send_results(self, writer):
        """Give what is not acknowledged: once on each connection, and what is new."""
        given: set[str] = set()
        with contextlib.suppress(ConnectionError):
            while True:
                for control_id, message in list(self.unacknowledged):
                    if control_id not in given | self.given_bad_ids:
                        given.add(control_id)
                        self.given_bad_ids |= self.bad_ids & {control_id}
                        writer.write(VT + message + FS + CR)
                        await writer.drain()
                self.wake.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.wake.wait(), 0.02)

    async def handle_message(self, data: bytes, writer):
        self.raw.append(data)
        message = hl7.parse(data.decode())
        header = message.segment("MSH")
        control_id = str(header[10])
        if str(header[9]).startswith("ACK"):
            msa = message.segment("MSA")
            if str(msa[1]) in {"AE", "AR", "CE", "CR"}:
                self.refused_ids.add(str(msa[2]))
            if str(msa[1]) in {"AA", "CA"}:
                self.unacknowledged = [one for one in self.unacknowledged if one[0] != str(msa[2])]
            return
        orcs = message.segments("ORC")
        lines = [str(orc[2]) for orc in orcs]
        if str(orcs[0][1]) == "CA":
            self.cancelled_lines |= set(lines)
        else:
            self.received_ids.append(control_id)
            name = {"msh10": control_id, "placer": lines[0], "none": None}[self.deduplicate_by]
            known = name in self.known_keys
            if self.state != "refusing":
                self.known_keys |= {control_id, *lines}
                if not known:
                    self.accepted_ids.append(control_id[:16])
        if self.state == "silent":
            writer.close()
        elif not self.silent:
            codes = ["CA"] if str(header[15] if len(header) > 15 else "") == "AL" else []
            if self.state == "refusing":
                codes = ["AR"]
            elif not codes or str(header[16]) == "AL":
                codes.append(self.answer_code)
            for code in codes:
                writer.write(VT + self.build_ack(code, control_id, lines).encode() + FS + CR)
            await writer.drain()

    def build_ack(self, code: str, control_id: str, lines: list[str]) -> str:
        number = next(self.numbers)
        header = f"MSH|^~\\&|LIS||LAB-AGENT||20240517083000||ORL^O22|Z{number}|P|2.5.1"
        text = f"{header}\rMSA|{code}|{control_id}\r{self.extra_segments}"
        if code == "AA" and not self.extra_segments:
            text += "".join(f"ORC|OK|{line}|F{line[-6:]}\r" for line in lines)
        return text

    def queue_result(self, message: LabMessage, control_id: str = "") -> None:
        control_id = control_id or f"M{next(self.numbers)}"
        self.unacknowledged.append((control_id, build_oru(message, control_id).encode()))
        self.wake.set()

    def queue_bad_result(self) -> None:
        """Give a result in a message that says that it has one, and has none."""
        control_id = f"BAD{next(self.numbers)}"
        text = f"MSH|^~\\&|LIS|LAB|LAB-AGENT||20240518083000+0300||ORU^R01^ORU_R01|{control_id}|P|2.5.1\rPID|1||X\r"
        self.bad_ids.add(control_id)
        self.unacknowledged.append((control_id, text.encode()))
        self.wake.set()

    @property
    def bad_results_kept(self) -> int:
        """Bad results that were refused, and are still here."""
        return sum(1 for control_id, _ in self.unacknowledged if control_id in self.bad_ids & self.refused_ids)

    async def close(self):
        if self.server:
            for one in self.server.sockets:
                asyncio.get_running_loop().remove_reader(one.fileno())
            for _ in range(10):
                await asyncio.sleep(0)
            self.server.close()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for _ in range(10):
            for writer in self.writers:
                writer.close()
            await asyncio.sleep(0)


def build_oru(message: LabMessage, control_id: str) -> str:
    lines = [f"MSH|^~\\&|LIS|LAB|LAB-AGENT||20240518083000+0300||ORU^R01^ORU_R01|{control_id}|P|2.5.1", "PID|1||X"]
    if isinstance(message, LabRejection):
        entry = message.not_performed[0]
        lines += [f"OBR|1|{entry.line}||T", f"SPM|1|||{'|' * 17}RH^{escape(entry.reason)}^HL70490"]
        return "\r".join(lines) + "\r"
    assert isinstance(message, LabReport)
    status = {"final": "F", "preliminary": "P", "partial": "A", "registered": "I"}[message.status]
    keys = "~".join(message.lines)
    times = f"{message.effective:%Y%m%d%H%M%S%z}|{'|' * 14}{message.issued:%Y%m%d%H%M%S%z}"
    lines.append(f"OBR|1|{keys}|{message.report_id}|T|||{times}|||{status}")
    for number, one in enumerate(message.observations, 1):
        quantity, bounds = one.value_quantity, one.reference_ranges
        text = f"{bounds[0].low.value}-{bounds[0].high.value}" if bounds else ""
        code = f"{one.code.code}^^LN"
        lines.append(f"OBX|{number}|NM|{code}||{quantity.value}|{escape(quantity.unit)}|{text}||||F")
    for number, document in enumerate(message.documents, 100):
        data = b64encode(document.content).decode()
        lines.append(f"OBX|{number}|ED|PDF||^application^PDF^Base64^{data}||||||F")
    return "\r".join(lines) + "\r"
