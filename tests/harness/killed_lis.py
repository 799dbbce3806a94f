"""A laboratory system that may be killed at any moment: the LIS simulator, with values of many digits and a note of repeats.

    python -m tests.harness.killed_lis ORDERS RESULTS OWN [BY ...]

BY are the arguments of `lab-sandbox stand-in-lis --by`. What comes a second time, though it was taken before, is noted in
`OWN/again`: an order's file, or an order that is posted over HTTP to a system that can be asked for it.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from random import Random

import typer
from typing_extensions import override

from lab_sandbox.demo.lis import simulator, transport_http
from lab_sandbox.demo.lis.messages import SimulatorBehaviour
from lab_sandbox.demo.lis.simulator import CANCELLATION_SUFFIX, LisSimulator, LisTransport, SimulatorFolders
from lab_sandbox.demo.lis.values import PANELS, Measurand, amount
from lab_sandbox.demo.scenarios import HAEMOLYSED_ITEM, STAGED_ITEM
from lab_sandbox.demo.workspace import build_transport
from lab_sandbox.partner.errors import Json

REPEATS = "again"
"""The folder within the system's own with a file for each repeat."""
STAGE_SECONDS = 1.0
_ROUND_SECONDS = 0.05
_HARD = ("1.20", "0.10", "7.000", "0.30000000000000004", "100", "0.0000001", "1.10000000000000000", "9007199254740993")
"""Amounts that a float would change."""


def hard_value(unit: str, rng: Random) -> Json:
    """An amount whose digits a float would lose: one of the known ones, or seventeen digits, some with zeros at the end."""
    digits = Decimal(rng.randrange(10**16, 10**17)).scaleb(-rng.randint(1, 16))
    return {"value_quantity": amount(rng.choice((*_HARD, digits, digits.scaleb(-1) * 10)), unit)}


def _with_hard_value(measurand: Measurand, unit: str) -> Measurand:
    def draw(rng: Random, _collected: datetime) -> Json:
        return hard_value(unit, rng)

    return Measurand(measurand.code, measurand.display, draw)


HARD_PANELS = {
    "001.001": (
        _with_hard_value(PANELS["001.001"][0], "g/L"),
        *(_with_hard_value(each, "10*9/L") for each in PANELS["001.001"][1:]),
    ),
    "002.001": (_with_hard_value(PANELS["002.001"][0], "mmol/L"), *PANELS["002.001"][1:]),
    "002.003": (_with_hard_value(PANELS["002.003"][0], "U/L"),),
}


class CountingSimulator(LisSimulator):
    """Sets aside an order file that comes again."""

    @override
    def run_once(self) -> list[str]:
        folders = self._folders
        for file in folders.orders.glob("*.json"):
            if not file.name.endswith(CANCELLATION_SUFFIX) and (folders.received_orders / file.name).exists():
                file.replace(folders.state / REPEATS / f"{file.stem}-{uuid.uuid4().hex}")
        return super().run_once()


class CountingHttpTransport(transport_http.HttpTransport):
    """Notes each order that is posted again, although the agent could have asked for it."""

    @override
    def receive(self, path: str, headers: Mapping[str, str], body: bytes) -> int:
        status = super().receive(path, headers, body)
        if status == 409:
            (self._folders.state / REPEATS / f"{headers['Idempotency-Key']}-{uuid.uuid4().hex}").touch()
        return status


def main() -> None:
    orders, results, own, *by = sys.argv[1:]
    folders = SimulatorFolders(Path(orders), Path(results), Path(own))
    (folders.state / REPEATS).mkdir(parents=True, exist_ok=True)
    PANELS.update(HARD_PANELS)
    simulator.LisSimulator = CountingSimulator  # type: ignore[misc]  # the one that `run_simulator` runs

    def open_transport() -> LisTransport:
        if by[:1] == ["http"]:
            return CountingHttpTransport(folders, int(by[1]), by[2])
        return build_transport(by, folders)

    simulator.run_simulator(
        folders,
        SimulatorBehaviour(frozenset({STAGED_ITEM}), frozenset({HAEMOLYSED_ITEM}), use_value_fallbacks=by[:1] == ["hl7v2"]),
        open_transport,
        interval=_ROUND_SECONDS,
        stage_timeout=STAGE_SECONDS,
        print_line=typer.echo,
    )


if __name__ == "__main__":
    main()
