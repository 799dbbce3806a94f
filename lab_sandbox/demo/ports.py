"""Ports for the demo's programs: the ones of the settings where they are free, other free ones where they are taken."""

from __future__ import annotations

import socket
from collections.abc import Iterable

HOST = "127.0.0.1"


def choose_ports(wanted: Iterable[int], *, use_other_ports: bool = False) -> dict[int, int]:
    """For each wanted port the one to use, all of them different; `others` takes none of the wanted ones."""
    wanted = list(wanted)
    given = {} if use_other_ports else {port: port for port in wanted if is_port_free(port)}
    for port in wanted:
        if port not in given:
            given[port] = _find_free_port({*wanted, *given.values()})
    return given


def is_port_free(port: int) -> bool:
    """Whether a server could listen on this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _find_free_port(taken: set[int]) -> int:
    while True:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = int(probe.getsockname()[1])
        if port not in taken:
            return port
