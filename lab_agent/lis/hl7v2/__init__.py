"""The LIS by HL7 v2 over MLLP: OML^O21 or ORM^O01 out, ORU and OUL in; ORL, ORR and ACK are read.

Framing, escaping and parsing are our own, since no library splits a stream as a LIS does (code pages, frames in pieces, several
on one connection, damage in between). A field map in TOML (`default.toml`) says which value belongs into which field, and a
laboratory can override it. Nothing is acknowledged before it is in the inbox (law 1); a missing acknowledgement is an unknown
outcome (law 3).

Begin with `receiver.py` and `results/result_reader.py` for what comes in, with `orders/submission.py` for what goes out.
"""

from __future__ import annotations

from lab_agent.lis.hl7v2.adapter import Hl7v2Adapter
from lab_agent.lis.hl7v2.settings import Hl7v2Settings

__all__ = ["Hl7v2Adapter", "Hl7v2Settings"]
