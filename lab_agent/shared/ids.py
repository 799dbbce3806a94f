"""Our own keys.

A key is derived from the address of the exchange service and the Task's id there, so that the same order has the same key on
every worker and after a restored backup: the LIS can recognise a repeat even if our own database is lost. Keys are short
and plain (16 characters of A–Z and 2–7), since they travel in HL7 v2 fields of 20 characters and in barcodes.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from typing import NewType

OrderKey = NewType("OrderKey", str)
"""Our key of an order: `R` and 15 characters."""
WorkOrderKey = NewType("WorkOrderKey", str)
"""Our key of the part of an order that goes to one laboratory system: `W` and 15 characters. No laboratory system sees it."""
LineKey = NewType("LineKey", str)
"""Our key of an order line (a ProcedureRequest and its Task): `L` and 15 characters."""
ReportKey = NewType("ReportKey", str)
"""Our key of one version of one report, as it came in: `P` and 15 characters."""
JobId = NewType("JobId", int)
"""Number of a row of the outbox; a larger one was decided later."""
ResourceId = NewType("ResourceId", str)
"""Id of a resource on the exchange service."""

RefusedKey = NewType("RefusedKey", str)
"""Key of a message that was refused."""

_DIGEST_LENGTH = 15
_FORM = re.compile(rf"[A-Z][A-Z2-7]{{{_DIGEST_LENGTH}}}\Z")


def order_key(base_url: str, task_id: str) -> OrderKey:
    """Key of the order whose order-level Task is `task_id` on the exchange service at `base_url`."""
    return OrderKey("R" + _digest(base_url, task_id))


def line_key(base_url: str, task_id: str) -> LineKey:
    """Key of the line whose Task is `task_id` on the exchange service at `base_url`."""
    return LineKey("L" + _digest(base_url, task_id))


def is_order_key(text: str) -> bool:
    """Whether a text has the form of our key of an order."""
    return text.startswith("R") and _FORM.match(text) is not None


def is_line_key(text: str) -> bool:
    """Whether a text has the form of our key of a line."""
    return text.startswith("L") and _FORM.match(text) is not None


def work_order_key(order: OrderKey, adapter: str) -> WorkOrderKey:
    """Key of the part of an order that goes to the laboratory system `adapter`."""
    return WorkOrderKey("W" + _digest(order, adapter))


def report_key(adapter: str, message: str, part: int = 0) -> ReportKey:
    """Key of the `part`-th report in the message with the stable name `message` from `adapter`."""
    return ReportKey("P" + _digest(adapter, f"{message}#{part}"))


def refused_key(adapter: str, message: str, raw: bytes | None) -> RefusedKey:
    """Key of a refused message of `adapter`: of its content, else of the name that it was given; the same whenever it comes."""
    told = f"#{message}" if raw is None else hashlib.sha256(raw).hexdigest()
    return RefusedKey("M" + _digest(adapter, told))


def worker_name(host: str) -> str:
    """Name of a running worker, unique for each start, so that the lease of a dead process is never taken for ours."""
    return f"{host}-{secrets.token_hex(4)}"


def _digest(*parts: str) -> str:
    raw = hashlib.sha256("\n".join(part.rstrip("/") for part in parts).encode()).digest()
    return base64.b32encode(raw).decode("ascii")[:_DIGEST_LENGTH]
