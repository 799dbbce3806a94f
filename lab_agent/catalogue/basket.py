"""A basket as it comes, read against the catalogue (interface: Questionnaire request, Pre-analytics request).

Every problem of the basket is found at once; each names its position in the request and the mend. Codes may be numbers or
strings, null means missing, `bodycite_code` is taken for `bodysite_code`, and a guid may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lab_agent.catalogue.basket_problems import BasketProblem, Findings
from lab_agent.catalogue.choice import Wish, choose
from lab_agent.catalogue.items import Contract, Item, Requirement, unknown_contract

_ITEMS = "analyticsrequests"


@dataclass(frozen=True, slots=True)
class Line:
    """One basket item: the test, and the chosen biomaterial (empty where there is no choice)."""

    position: int
    item: Item
    chosen: tuple[Requirement, ...]
    guid: str | None = None

    @property
    def guids(self) -> tuple[str, ...]:
        """The guid as a tuple of one or none."""
        return () if self.guid is None else (self.guid,)


@dataclass(frozen=True, slots=True)
class Basket:
    """A whole basket that can be answered."""

    contract: Contract
    lines: tuple[Line, ...]
    transport: bool = False


def read(body: Any, contracts: Mapping[str, Contract], max_items: int) -> Basket:
    """Read a request body (decoded JSON).

    `contracts` are those that the caller may see. Raises `UnknownContractError`, or `BasketError` with every problem.
    """
    findings = Findings()
    if not isinstance(body, Mapping):
        raise findings.alone("body", "is not a JSON object", "send {contract, analyticsrequests}", "structure")
    code = findings.text(body, "contract", "contract")
    if code is None and not findings.problems:
        findings.add("contract", "is missing", "name the contract code", "required")
    items = body.get(_ITEMS)
    if not isinstance(items, list):
        findings.add(_ITEMS, "is missing or not an array", "send the whole basket as an array of items", "required")
    if code is not None and code not in contracts:
        raise unknown_contract(code)
    if not isinstance(items, list) or not _countable(items, max_items, findings) or code is None:
        raise findings.error()
    transport = findings.flag(body, "includetransportcontainer")
    lines = _lines(items, contracts[code], findings)
    findings.close()
    return Basket(contracts[code], lines, transport)


def _countable(items: list[Any], max_items: int, findings: Findings) -> bool:
    if not items:
        findings.add(_ITEMS, "is empty", "send at least one item", "required")
    elif len(items) > max_items:
        what = f"holds {len(items)} items, more than the {max_items} allowed"
        findings.add(_ITEMS, what, "split the basket", "too-costly")
    else:
        return True
    return False


def _lines(items: list[Any], contract: Contract, findings: Findings) -> tuple[Line, ...]:
    nearby = _Nearby(contract)
    guids: dict[int, str | None] = {}
    lines: list[Line] = []
    for position, raw in enumerate(items):
        where = f"{_ITEMS}[{position}]"
        if not isinstance(raw, Mapping):
            findings.add(where, "is not an object", "send {id, specimen_code, guid, …}", "structure")
            continue
        guids[position] = findings.text(raw, "guid", f"{where}.guid")
        if line := _line(position, raw, guids[position], nearby, findings):
            lines.append(line)
    _refuse_doubled_guids(guids, findings)
    _refuse_repeats(lines, findings)
    return tuple(lines)


def _line(position: int, raw: Mapping[str, Any], guid: str | None, nearby: _Nearby, findings: Findings) -> Line | None:
    where = f"{_ITEMS}[{position}]"
    item_id = findings.text(raw, "id", f"{where}.id")
    wish = _wish(raw, where, findings)
    if item_id is None:
        findings.add(f"{where}.id", "is missing", "name an id of the nomenclature", "required")
        return None
    item = nearby.contract.items.get(item_id)
    if item is None:
        mend = nearby.find(item_id) or "fetch the nomenclature again, or remove the item"
        findings.add(f"{where}.id", f"item {item_id[:50]!r} is not in the nomenclature of this contract", mend, "not-found")
        return None
    chosen = choose(item, wish, where, findings)
    return None if chosen is None else Line(position, item, chosen, guid)


class _Nearby:
    """Which item a code may have meant. The items are looked through once for a basket, and only where a code is not known."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract

    def find(self, item_id: str) -> str:
        """A code that went through a spreadsheet as a number has lost its leading zeros; nothing dearer is tried on a request."""
        found = self._by_bare.get(_bare(item_id))
        return f"did you mean {found!r}?" if found else ""

    @cached_property
    def _by_bare(self) -> dict[str, str]:
        return {_bare(each): each for each in reversed(tuple(self.contract.items))}  # of several the first is meant


def _bare(item_id: str) -> str:
    return item_id.lstrip("0").lower()


def _wish(raw: Mapping[str, Any], where: str, findings: Findings) -> Wish:
    site = findings.text(raw, "bodysite_code", f"{where}.bodysite_code")
    variant = findings.text(raw, "bodycite_code", f"{where}.bodycite_code")
    if site is not None and variant is not None and site != variant:
        what = f"says {variant[:50]!r}, while bodysite_code says {site[:50]!r}"
        findings.add(f"{where}.bodycite_code", what, "send bodysite_code only", "value")
    container = findings.text(raw, "container_type", f"{where}.container_type")
    return Wish(findings.codes(raw, "specimen_code", f"{where}.specimen_code"), site or variant, container)


def _refuse_doubled_guids(guids: Mapping[int, str | None], findings: Findings) -> None:
    """Also of a line that has another mistake: both are mended at once."""
    first: dict[str, int] = {}
    for position, guid in guids.items():
        if guid is not None and (before := first.setdefault(guid.lower(), position)) != position:
            what = f"is also the guid of {_ITEMS}[{before}]"
            findings.add(f"{_ITEMS}[{position}].guid", what, "give each basket item a guid of its own", "duplicate")


def _refuse_repeats(lines: list[Line], findings: Findings) -> None:
    """A repeat is the same id, biomaterial type, body site and container; another type is not one (order rule 2)."""
    first: dict[tuple[str, object], int] = {}
    for line in lines:
        if line.item.allow_multiple_items:
            continue
        for choice in line.chosen or (None,):
            same = (line.item.id, choice and (choice.specimen_code, choice.option.bodysite_code, choice.option.container_type))
            if (before := first.setdefault(same, line.position)) != line.position:
                what = f"repeats {_ITEMS}[{before}], and item {line.item.id!r} may be ordered only once"
                findings.add(f"{_ITEMS}[{line.position}]", what, "remove one of the two", "duplicate")
                break


__all__ = ["Basket", "BasketProblem", "Line", "Wish", "choose", "read"]
