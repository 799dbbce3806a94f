"""The laboratory's API against its floors: a nomenclature of 5,000 items, and the tubes of a basket of 20.

`lab-api run` and the floor (`api_floors`) are processes of their own, asked in turn, in slices of a second, by the same generator
over the same number of connections, so that what else the machine does falls on both. The numbers are requests a second and the
server's own CPU of a request; the ratios are the floor's CPU by ours, and our requests a second by the floor's.
"""

from __future__ import annotations

import asyncio
import csv
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measurement import Measurement, RunOptions
from benchmarks.workspace import exchange_and_store_settings
from lab_agent.store.schema import upgrade

TOKEN = "benchmark-token"  # noqa: S105 - of a server that lives as long as the benchmark
CONTRACT = "C-1"
CONNECTIONS = 8
_TICKS = os.sysconf("SC_CLK_TCK")
_SAMPLE = Path(__file__).parent.parent / "config" / "catalogue"


@dataclass(frozen=True, slots=True)
class Measured:
    """What one server did; `cpu` is its seconds of CPU for a request."""

    requests: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds


@dataclass(frozen=True, slots=True)
class Comparison:
    """A benchmark's result; both ratios are 1 where ours is as good as the floor."""

    name: str
    floor: str
    rate: float
    floor_rate: float
    cpu_ms: float
    floor_cpu_ms: float
    rate_ratio: float
    cpu_ratio: float
    body_bytes: int


def measure(options: RunOptions) -> list[Measurement]:
    """Measure the nomenclature and the pre-analytics."""
    slices = options.choose(1, 4)
    found = ((nomenclature(slices), 0.9), (nomenclature(slices, encoding="identity"), 0.9), (preanalytics(slices), 0.2))
    return [each for comparison, aim in found for each in _to_measurements(comparison, aim)]


def _to_measurements(found: Comparison, least_ratio: float) -> list[Measurement]:
    what = found.name
    return [
        Measurement(name=f"{what}: CPU", value=found.cpu_ms, unit="ms/request"),
        Measurement(name=f"{what}: floor", value=found.floor_cpu_ms, unit="ms/request", note=found.floor),
        Measurement(name=f"{what}: floor / ours", value=found.cpu_ratio, unit="", at_least=least_ratio, note="by CPU"),
        Measurement(name=f"{what}: throughput", value=found.rate, unit="requests/s", note=f"the floor {found.floor_rate:,.0f}"),
    ]


def nomenclature(slices: int = 5, items: int = 5000, encoding: str = "gzip") -> Comparison:
    """`GET nomenclature` of a contract with so many items, as clients ask for it: compressed."""
    with _environment(items) as (folder, start_ours, start_floor):
        port, ours = start_ours()
        request = _request("GET", f"/nomenclature?contract={CONTRACT}", b"", encoding)
        body = _body_of(port, request)
        floor_port, floor = start_floor("bare", folder, body, encoding)
        measured, floored = _alternate([(port, ours, lambda: request), (floor_port, floor, lambda: request)], slices)
    size = f"{items:,} items" if encoding == "identity" else f"{items:,} items, {encoding}"
    return _compare(f"nomenclature, {size}", "bare ASGI application, same bytes", measured, floored, len(body))


def preanalytics(slices: int = 5, size: int = 20, *, repeated: bool = False) -> Comparison:
    """`POST preanalytics` of a basket of so many items; with new guids each time, or (`repeated`) one that has its labels."""
    with _environment(400) as (folder, start_ours, start_floor):
        port, ours = start_ours()
        fixed = _basket(size)

        def make() -> bytes:
            return _request("POST", "/preanalytics", fixed if repeated else _basket(size), "identity")

        body = _body_of(port, make())
        floor_port, floor = start_floor("constant", folder, body, "identity")
        measured, floored = _alternate([(port, ours, make), (floor_port, floor, make)], slices)
    name = f"pre-analytics, {size} items" + (", asked again" if repeated else "")
    return _compare(name, "FastAPI route that returns the same constant", measured, floored, len(body))


def _compare(name: str, floor: str, ours: Measured, floored: Measured, size: int) -> Comparison:
    ratios = ours.rate / floored.rate, floored.cpu / ours.cpu
    return Comparison(name, floor, ours.rate, floored.rate, ours.cpu * 1e3, floored.cpu * 1e3, *ratios, size)


# --- load -------------------------------------------------------------------------------------------------------------------

Server = tuple[int, int, Callable[[], bytes]]
"""Port, process id, and what makes the next request."""


def _alternate(servers: list[Server], slices: int) -> list[Measured]:
    """Ask each server in turn, one second each; the first slice warms up."""
    taken: list[list[Measured]] = [[] for _ in servers]
    for number in range(slices + 1):
        for place, (port, pid, make) in enumerate(servers):
            found = asyncio.run(_slice(port, pid, make))
            if number:
                taken[place].append(found)
    return [_sum(each) for each in taken]


def _sum(parts: list[Measured]) -> Measured:
    requests = sum(each.requests for each in parts)
    return Measured(requests, sum(each.seconds for each in parts), sum(each.cpu * each.requests for each in parts) / requests)


async def _slice(port: int, pid: int, make: Callable[[], bytes], seconds: float = 1.0) -> Measured:
    used, began = _cpu(pid), time.perf_counter()
    counts = await asyncio.gather(*(_client(port, make, began + seconds) for _ in range(CONNECTIONS)))
    elapsed = time.perf_counter() - began
    return Measured(sum(counts), elapsed, (_cpu(pid) - used) / sum(counts))


async def _client(port: int, make: Callable[[], bytes], until: float) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    count = 0
    while time.perf_counter() < until:
        writer.write(make())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"the server answered {head[:12]!r}")
        await reader.readexactly(_content_length(head))
        count += 1
    writer.close()
    return count


def _content_length(head: bytes) -> int:
    return int(head.lower().split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])


def _cpu(pid: int) -> float:
    """Seconds of CPU that a process has used, in user mode and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _request(method: str, target: str, body: bytes, encoding: str) -> bytes:
    head = f"{method} {target} HTTP/1.1\r\nHost: lab\r\nAuthorization: Bearer {TOKEN}\r\nAccept-Encoding: {encoding}\r\n"
    length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    return f"{head}{length}\r\n".encode() + body


def _basket(size: int) -> bytes:
    lines = [{"id": f"{number:04}", "guid": str(uuid.uuid4())} for number in range(size)]
    return json.dumps({"contract": CONTRACT, "analyticsrequests": lines}).encode()


def _body_of(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(request)
        with sock.makefile("rb") as stream:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += stream.readline()
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"the server answered {head[:12]!r}")
            return stream.read(_content_length(head))


# --- servers ----------------------------------------------------------------------------------------------------------------


@contextmanager
def _environment(items: int) -> Iterator[tuple[Path, Callable[[], tuple[int, int]], Callable[..., tuple[int, int]]]]:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        write_catalogue(folder / "catalogue", items)

        def start_ours() -> tuple[int, int]:
            port = _free_port()
            config = _write_settings(folder, port)
            command = [sys.executable, "-c", "from lab_api.cli import main; main()", "run", "--config", str(config)]
            return port, _start(stack, command, port, folder)

        def start_floor(kind: str, folder: Path, body: bytes, encoding: str) -> tuple[int, int]:
            port, path = _free_port(), folder / "body"
            path.write_bytes(body)
            command = [sys.executable, "-m", "benchmarks.api_floors", kind, str(port), str(path), encoding]
            return port, _start(stack, command, port, folder)

        yield folder, start_ours, start_floor


def _start(stack: ExitStack, command: list[str], port: int, folder: Path, within: float = 60.0) -> int:
    log = stack.enter_context((folder / f"log-{port}").open("wb"))
    root = Path(__file__).parent.parent
    process = subprocess.Popen(command, stderr=log, stdout=log, cwd=root)  # noqa: S603 - our own programs
    stack.callback(_stop, process)
    deadline = time.monotonic() + within
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((folder / f"log-{port}").read_text()) from None
            time.sleep(0.05)
        else:
            return process.pid


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def write_catalogue(folder: Path, items: int) -> None:
    """A catalogue of one contract: items of four biomaterial types and tubes, a fifth of them with a question."""
    folder.mkdir()
    tables: dict[str, list[dict[str, object]]] = {
        "specimen_types": [{"specimen_code": 10 + kind, "specimen_name": f"Biomaterial {kind}"} for kind in range(4)],
        "containers": [
            {"container_type": f"T{kind}", "container_name": f"Tube {kind}", "description": f"Tube of kind {kind}, 5 ml",
             "capacity": "5.0", "dead_volume": "0.5", "unit": "ml"} for kind in range(4)
        ],
        "items": [
            {"item": f"{n:04}", "caption": f"Test number {n} of the laboratory, quantitative", "lab_id": f"L{n}",
             "lab_caption": f"Test {n}", "group": f"Group {n % 40}", "patient_preparation": "Fasting for 8 hours|No alcohol"}
            for n in range(items)
        ],
        "requirements": [
            {"item": f"{n:04}", "specimen_code": 10 + n % 4, "role": "option", "container_type": f"T{n % 4}", "volume": "0.5",
             "method": "Venepuncture", "processing": "Keep at 2–8 °C", "stability_hours": 24 + n % 5,
             "stability": f"Keeps for {24 + n % 5} hours"} for n in range(items)
        ],
        "contracts": [{"contract": CONTRACT, "name": "Clinics"}],
        "contract_items": [{"contract": CONTRACT, "item": f"{n:04}", "price": f"{100 + n % 900}.50"} for n in range(items)],
        "turnaround": [{"item": f"{n:04}", "hours": 24, "caption": "By the next working day"} for n in range(items)],
    }  # fmt: skip
    for name, rows in tables.items():
        header = (_SAMPLE / f"{name}.csv").read_text(encoding="utf-8").splitlines()[0].split(",")
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, header)
            writer.writeheader()
            writer.writerows(rows)


def _write_settings(folder: Path, port: int) -> Path:
    database = f"sqlite:///{folder}/agent.db"
    upgrade(database)
    path = folder / f"settings-{port}.toml"
    path.write_text(
        exchange_and_store_settings("http://127.0.0.1:1/", database, CONTRACT)
        + f"""\
[lis]
default = "folder"
[lis.folder]
orders = "{folder}/orders"
results = "{folder}/results"
[api]
port = {port}
catalogue = "{folder}/catalogue"
drain = 2
rate = 1000000
burst = 1000000
[[api.pools]]
name = "main"
pattern = "77##########%"
last = 9999999999
check_digit = "luhn"
[[api.tokens]]
name = "exchange"
sha256 = "{hashlib.sha256(TOKEN.encode()).hexdigest()}"
"""
    )
    return path
