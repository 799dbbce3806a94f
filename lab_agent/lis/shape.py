"""Whether what stands behind an entry point is an adapter at all, seen before anything of it is called."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from lab_agent.errors import Problem
from lab_agent.ports.lis import CONTRACT_VERSION

ADAPTER_METHODS = {
    "start": 1,
    "stop": 0,
    "check": 0,
    "prepare": 1,
    "submit": 1,
    "was_received": 1,
    "cancel": 3,
    "collect": 0,
}
"""The methods of an adapter, and how many arguments each is called with."""


def interface_problems(candidate: Any, where: str) -> tuple[Problem, ...]:
    """Say what keeps `candidate` from being an adapter's class; empty if nothing does."""
    if not isinstance(candidate, type):
        return (Problem(where, "the entry point leads to no class", "let it name the adapter's class"),)
    declared = getattr(candidate, "contract_version", 1)
    if declared != CONTRACT_VERSION:
        return (_version_problem(candidate, declared, where),)
    return tuple(Problem(where, f"{candidate.__name__}.{what}", mend) for what, mend in _interface_faults(candidate))


def _version_problem(candidate: type[Any], declared: object, where: str) -> Problem:
    if not isinstance(declared, int) or isinstance(declared, bool):
        return Problem(where, f"{candidate.__name__}.contract_version is no whole number", f"write {CONTRACT_VERSION}")
    older = declared < CONTRACT_VERSION
    what = f"wrong version: {candidate.__name__} was written for version {declared} of the adapters' contract, "
    mend = "install a newer version of the adapter's package" if older else "install a newer version of the agent"
    return Problem(where, f"{what}and this agent keeps version {CONTRACT_VERSION}", mend)


def _interface_faults(candidate: type[Any]) -> Iterator[tuple[str, str]]:
    settings = getattr(candidate, "Settings", None)
    if not (isinstance(settings, type) and issubclass(settings, BaseModel)):
        yield "Settings is missing", "give it a pydantic model of the adapter's keys"
    elif settings.model_config.get("extra") != "forbid":
        yield "Settings takes unknown keys", 'set model_config = ConfigDict(extra="forbid")'
    if not isinstance(getattr(candidate, "idempotent", None), bool):
        yield "idempotent is missing", "say True or False: may submit be repeated for the same order?"
    for name, arguments in ADAPTER_METHODS.items():
        yield from _method_faults(candidate, name, arguments)


def _method_faults(candidate: type[Any], name: str, arguments: int) -> Iterator[tuple[str, str]]:
    method = getattr(candidate, name, None)
    if method is None:
        yield f"{name} is missing", "add it; the page for adapter authors says what it does"
    elif not inspect.iscoroutinefunction(method):
        yield f"{name} is not async", f"write async def {name}"
    else:
        try:
            inspect.signature(method).bind(*[None] * (arguments + 1))
        except TypeError:
            yield f"{name} cannot be called with {arguments} arguments", "give it those of the LisAdapter protocol"
