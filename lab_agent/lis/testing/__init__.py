"""What an author tests an adapter with: the contract suite, an in-memory inbox, and generated orders and messages.

Subclass `AdapterContract` in a test module and implement `bench` (the laboratory system or a stand-in for it, with the adapter
on it); every test of the suite then runs. It needs pytest and nothing else. docs/adapters.md shows an example.
"""

from __future__ import annotations

from lab_agent.lis.testing.contract_suite import AdapterContract
from lab_agent.lis.testing.fault_suite import FaultContract
from lab_agent.lis.testing.harness import Bench, LisState, MemoryInbox, resume_submit, submit_order
from lab_agent.lis.testing.samples import make_correction, make_order, make_rejection, make_report

__all__ = [
    "AdapterContract",
    "Bench",
    "FaultContract",
    "LisState",
    "MemoryInbox",
    "make_correction",
    "make_order",
    "make_rejection",
    "make_report",
    "resume_submit",
    "submit_order",
]
