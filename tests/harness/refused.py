"""A laboratory system that speaks HL7 v2 and whose statuses the map lacks, over the agent's real store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.harness.hl7_wire import dialled, framed

VT, FS, CR = b"\x0b", b"\x1c", b"\r"
NAME = "Saltykova"
UNKNOWN_STATUS = "Q"
"""OBR-25, which the default map does not know."""
MENDED_MAP = f'[tables.report_status]\n{UNKNOWN_STATUS} = "final"\n'


def oru(control_id: str = "M1", *, status: str = UNKNOWN_STATUS, number: str = "77-1", end: str = "\r") -> bytes:
    """Two reports of one message: the second has `status`."""
    segments = [
        f"MSH|^~\\&|LIS|LAB|LAB-AGENT||20260301120000+0000||ORU^R01^ORU_R01|{control_id}|P|2.5.1",
        f"PID|1||P-7||{NAME}^Vera||19610412|F",
        f"OBR|1|LINE-A|{number}A|GLU^Glucose^L|||20260301080000+0000|||||||||||||||20260301110000+0000|||F",
        "OBX|1|NM|2345-7^Glucose^LN||5.1|mmol/l|3.9-6.1||||F",
        f"OBR|2|LINE-B|{number}B|KAL^Potassium^L|||20260301080000+0000|||||||||||||||20260301110000+0000|||{status}",
        "OBX|1|NM|2823-3^Potassium^LN||4.4|mmol/l|3.5-5.1||||F",
    ]
    return "\r".join(segments).encode() + end.encode()


def adapter_table(folder: Path, mapping: Path, **keys: Any) -> dict[str, Any]:
    """The `[lis.<name>]` table of an adapter that listens for results on a port of its own."""
    return {
        "adapter": "hl7v2",
        "orders": {"role": "server", "port": 0},
        "results": {"role": "server", "port": 0},
        "folder": str(folder),
        "duplicates": "msh10",
        "mapping": str(mapping),
        **keys,
    }


async def send(port: int, *messages: bytes) -> list[str]:
    """Send messages on one connection, each after the answer to the one before; the code of each answer (MSA-1)."""
    codes = []
    async with dialled(port) as wire:
        for message in messages:
            await wire.send(framed(message))
            codes.append((await wire.frame()).split(b"\rMSA|")[1][:2].decode())
    return codes
