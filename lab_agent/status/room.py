"""What every group of pages works with."""

from __future__ import annotations

from lab_agent.status.gate import Gate
from lab_agent.status.house import House
from lab_agent.status.paper import Paper


class Room:
    """A group of pages: the parts of the house, the gate before them, and the paper that they are written on."""

    def __init__(self, house: House, gate: Gate, paper: Paper) -> None:
        self._house = house
        self._gate = gate
        self._paper = paper
