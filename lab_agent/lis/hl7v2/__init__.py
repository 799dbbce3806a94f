"""The LIS by HL7 v2 over MLLP: OML^O21 or ORM^O01 out, ORU^R01 in, ORL, ORR and ACK read.

Framing, escaping and reading are ours, since no library splits a stream as a LIS does (code pages, frames in pieces, several on
one connection, damage in between). Which word stands in which field is a map in TOML (`default.toml`) that a laboratory lays its
own over. Nothing is acknowledged before it is in the inbox (law 1); an answer that does not come is an unknown outcome (law 3).
"""

from __future__ import annotations

from lab_agent.lis.hl7v2.adapter import Hl7v2Adapter
from lab_agent.lis.hl7v2.settings import Hl7v2Settings

__all__ = ["Hl7v2Adapter", "Hl7v2Settings"]
