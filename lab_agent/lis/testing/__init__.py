"""What an author tests an adapter with: the contract suite, an inbox in memory, and made-up orders and reports.

Subclass `AdapterContract` in a test module and say how to make a bench (the laboratory system, or a stand-in for it, and the
adapter on it); every test of the suite then runs. It needs pytest and nothing else. docs/adapters.md shows one.
"""

from __future__ import annotations

from lab_agent.lis.testing.contract_suite import AdapterContract
from lab_agent.lis.testing.harness import Bench, MemoryInbox, resume_submit, submit_order
from lab_agent.lis.testing.samples import make_correction, make_order, make_rejection, make_report

__all__ = [
    "AdapterContract",
    "Bench",
    "MemoryInbox",
    "make_correction",
    "make_order",
    "make_rejection",
    "make_report",
    "resume_submit",
    "submit_order",
]
