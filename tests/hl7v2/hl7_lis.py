"""A laboratory system that speaks HL7 v2: python-hl7 reads, plain text writes. It knows nothing of our code.

It takes orders and tells repeats by its habit (`msh10`, `placer` or `none`), and gives each result until it is acknowledged.
"""

import asyncio
import contextlib
import itertools
import socket
from base64 import b64encode
from dataclasses import dataclass, field

import hl7

from lab_agent.domain.results import LabMessage, LabRefusal, LabReport

VT, FS, CR = b"\x0b", b"\x1c", b"\r"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def frames(reader):
    """Read messages, one by one."""
    while True:
        try:
            whole = await reader.readuntil(FS + CR)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        yield whole.lstrip(b"\r\n").removeprefix(VT).removesuffix(FS + CR)


def esc(text: str) -> str:
    for char, name in (("\\", "E"), ("|", "F"), ("^", "S"), ("&", "T"), ("~", "R")):
        text = text.replace(char, "\0" + name + "\0") if char != "\\" else text.replace(char, "\0E\0")
    return text.replace("\0", "\\").replace("\r", "\\X0D\\").replace("\n", "\\X0A\\")


@dataclass
class Hl7Lis:
    duplicates: str = "msh10"
    mute: bool = False
    """It takes orders and does not answer."""
    enhanced: bool = False
    answer_code: str = "AA"
    extra: str = ""
    """Segments that its answers carry."""
    seen: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    told: set[str] = field(default_factory=set)
    waiting: list[tuple[str, bytes]] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    placers: set[str] = field(default_factory=set)
    numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    tasks: "set[asyncio.Task[None]]" = field(default_factory=set)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    server: asyncio.Server | None = None
    stir: asyncio.Event = field(default_factory=asyncio.Event)

    async def listen(self, port: int = 0) -> int:
        self.server = await asyncio.start_server(self.called, "127.0.0.1", port)
        return int(self.server.sockets[0].getsockname()[1])

    def call(self, port: int) -> None:
        """Keep connected to that port."""
        self.tasks.add(asyncio.create_task(self.calling(port)))

    async def calling(self, port):
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                self.writers.append(writer)
                await self.connected(reader, writer)
            await asyncio.sleep(0.01)

    def called(self, reader, writer):
        self.writers.append(writer)
        if self.server.is_serving():
            self.tasks.add(asyncio.create_task(self.connected(reader, writer)))

    async def connected(self, reader, writer):
        giving = asyncio.create_task(self.give(writer))
        self.tasks.add(giving)
        try:
            async for message in frames(reader):
                await self.take(message, writer)
        except ConnectionError:
            pass
        finally:
            giving.cancel()
            writer.close()

    async def give(self, writer):
        """Give what is not acknowledged: once on each connection, and what is new."""
        given: set[str] = set()
        with contextlib.suppress(ConnectionError):
            while True:
                for control_id, message in list(self.waiting):
                    if control_id not in given:
                        given.add(control_id)
                        writer.write(VT + message + FS + CR)
                        await writer.drain()
                self.stir.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.stir.wait(), 0.02)

    async def take(self, data: bytes, writer):
        self.raw.append(data)
        message = hl7.parse(data.decode())
        header = message.segment("MSH")
        control_id = str(header[10])
        if str(header[9]).startswith("ACK"):
            msa = message.segment("MSA")
            self.answers.append(data.decode())
            if str(msa[1]) in {"AA", "CA"}:
                self.waiting = [one for one in self.waiting if one[0] != str(msa[2])]
            return
        orcs = message.segments("ORC")
        lines = [str(orc[2]) for orc in orcs]
        if str(orcs[0][1]) == "CA":
            self.told |= set(lines)
        else:
            self.seen.append(control_id)
            known = {"msh10": control_id in self.placers, "placer": lines[0] in self.placers, "none": False}[self.duplicates]
            self.placers |= {control_id, *lines}
            if not known:
                self.taken.append(control_id[:16])
        if not self.mute:
            codes = ["CA"] if str(header[15] if len(header) > 15 else "") == "AL" else []
            if not codes or str(header[16]) == "AL":
                codes.append(self.answer_code)
            for code in codes:
                writer.write(VT + self.answer(code, control_id, lines).encode() + FS + CR)
            await writer.drain()

    def answer(self, code: str, about: str, lines: list[str]) -> str:
        number = next(self.numbers)
        text = f"MSH|^~\\&|LIS||LAB-AGENT||20240517083000||ORL^O22|Z{number}|P|2.5.1\rMSA|{code}|{about}\r{self.extra}"
        if code == "AA" and not self.extra:
            text += "".join(f"ORC|OK|{line}|F{line[-6:]}\r" for line in lines)
        return text

    def put_out(self, message: LabMessage, control_id: str = "") -> None:
        control_id = control_id or f"M{next(self.numbers)}"
        self.waiting.append((control_id, oru(message, control_id, enhanced=self.enhanced).encode()))
        self.stir.set()

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


def stamp(moment) -> str:
    return f"{moment:%Y%m%d%H%M%S%z}"


def oru(message: LabMessage, control_id: str, *, enhanced: bool = False) -> str:
    asked = "|||AL|NE" if enhanced else ""
    lines = [f"MSH|^~\\&|LIS|LAB|LAB-AGENT||20240518083000+0300||ORU^R01^ORU_R01|{control_id}|P|2.5.1{asked}", "PID|1||X"]
    if isinstance(message, LabRefusal):
        entry = message.not_performed[0]
        lines += [f"OBR|1|{entry.line}||T", f"SPM|1|||{'|' * 17}RH^{esc(entry.reason)}^HL70490"]
        return "\r".join(lines) + "\r"
    assert isinstance(message, LabReport)
    status = {"final": "F", "preliminary": "P", "partial": "A", "registered": "I"}[message.status]
    keys = "~".join(message.lines)
    lines.append(f"OBR|1|{keys}|{message.report_id}|T|||{stamp(message.effective)}|{'|' * 14}{stamp(message.issued)}|||{status}")
    for number, one in enumerate(message.observations, 1):
        quantity, bounds = one.value_quantity, one.reference_ranges
        text = f"{bounds[0].low.value}-{bounds[0].high.value}" if bounds else ""
        code = f"{one.code.code}^^LN"
        lines.append(f"OBX|{number}|NM|{code}||{quantity.value}|{esc(quantity.unit)}|{text}||||F")
    for number, document in enumerate(message.documents, 100):
        data = b64encode(document.content).decode()
        lines.append(f"OBX|{number}|ED|PDF||^application^PDF^Base64^{data}||||||F")
    return "\r".join(lines) + "\r"
