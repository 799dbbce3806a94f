"""Reading a basket against the catalogue (interface: Questionnaire request, Pre-analytics request).

Every problem of the basket is found at once; each has its position in the request and what to do. Codes may be numbers or
strings, null means missing, `bodycite_code` is taken for `bodysite_code`, and a guid may be missing. The laboratory's API and
the command that explains a basket read the same way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lab_agent.catalogue.basket_errors import BasketProblems
from lab_agent.catalogue.model import Contract, Item, Requirement, unknown_contract_error
from lab_agent.catalogue.specimen_choice import SpecimenRequest, choose_requirements
from lab_agent.shared import exact_json
from lab_agent.shared.errors import DataInvalidError, Problem

_ITEMS_FIELD = "analyticsrequests"
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class BasketLine:
    """One basket item: the test, and the chosen biomaterial (empty where there is no choice)."""

    position: int
    item: Item
    chosen_requirements: tuple[Requirement, ...]
    guid: str | None = None

    @property
    def guids(self) -> tuple[str, ...]:
        """The guid as a tuple of one or none."""
        return () if self.guid is None else (self.guid,)


@dataclass(frozen=True, slots=True)
class Basket:
    """A whole basket that can be answered."""

    contract: Contract
    lines: tuple[BasketLine, ...]
    include_transport_containers: bool = False


def read_basket(body: Any, contracts: Mapping[str, Contract], max_items: int) -> Basket:
    """Read a request body (decoded JSON).

    `contracts` are those that the caller may see. Raises `UnknownContractError`, or `BasketError` with every problem.
    """
    problems = BasketProblems()
    if not isinstance(body, Mapping):
        raise problems.single_error("body", "is not a JSON object", "send {contract, analyticsrequests}", "structure")
    code = problems.read_text(body, "contract", "contract")
    if code is None and not problems.collected:
        problems.add("contract", "is missing", "send the contract code", "required")
    items = body.get(_ITEMS_FIELD)
    if not isinstance(items, list):
        problems.add(_ITEMS_FIELD, "is missing or not an array", "send the whole basket as an array of items", "required")
    if code is not None and code not in contracts:
        raise unknown_contract_error(code)
    if not isinstance(items, list) or not _has_valid_size(items, max_items, problems) or code is None:
        raise problems.to_error()
    transport = problems.read_flag(body, "includetransportcontainer")
    lines = _read_lines(items, contracts[code], problems)
    problems.raise_if_any()
    return Basket(contracts[code], lines, transport)


def _has_valid_size(items: list[Any], max_items: int, problems: BasketProblems) -> bool:
    if not items:
        problems.add(_ITEMS_FIELD, "is empty", "send at least one item", "required")
    elif len(items) > max_items:
        what = f"holds {len(items)} items, more than the {max_items} allowed"
        hint = "keep the basket whole, and ask the laboratory to raise its limit (api.max_basket)"
        problems.add(_ITEMS_FIELD, what, hint, "too-costly")
    else:
        return True
    return False


def _read_lines(items: list[Any], contract: Contract, problems: BasketProblems) -> tuple[BasketLine, ...]:
    suggester = _ItemSuggester(contract)
    guids: dict[int, str | None] = {}
    lines: list[BasketLine] = []
    for position, raw in enumerate(items):
        where = f"{_ITEMS_FIELD}[{position}]"
        if not isinstance(raw, Mapping):
            problems.add(where, "is not an object", "send {id, specimen_code, guid, …}", "structure")
            continue
        guids[position] = problems.read_text(raw, "guid", f"{where}.guid")
        if line := _read_line(position, raw, guids[position], suggester, problems):
            lines.append(line)
    _reject_duplicate_guids(guids, problems)
    _reject_repeated_items(lines, problems)
    return tuple(lines)


def _read_line(
    position: int, raw: Mapping[str, Any], guid: str | None, suggester: _ItemSuggester, problems: BasketProblems
) -> BasketLine | None:
    where = f"{_ITEMS_FIELD}[{position}]"
    item_id = problems.read_text(raw, "id", f"{where}.id")
    request = _read_specimen_request(raw, where, problems)
    if item_id is None:
        problems.add(f"{where}.id", "is missing", "send an id of the nomenclature", "required")
        return None
    item = suggester.contract.items.get(item_id)
    if item is None:
        hint = suggester.suggest(item_id) or "fetch the nomenclature again, or remove the item"
        problems.add(f"{where}.id", f"item {item_id[:50]!r} is not in the nomenclature of this contract", hint, "not-found")
        return None
    chosen = choose_requirements(item, request, where, problems)
    return None if chosen is None else BasketLine(position, item, chosen, guid)


class _ItemSuggester:
    """Which item an unknown code may have meant. The items are gone through once for a basket, and only where it is needed."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract

    def suggest(self, item_id: str) -> str:
        """A code that went through a spreadsheet as a number has lost its leading zeros; a request tries nothing more costly."""
        found = self._ids_by_normalized.get(_normalize_id(item_id))
        return f"did you mean {found!r}?" if found else ""

    @cached_property
    def _ids_by_normalized(self) -> dict[str, str]:
        return {_normalize_id(each): each for each in reversed(tuple(self.contract.items))}  # of several, the first one wins


def _normalize_id(item_id: str) -> str:
    return item_id.lstrip("0").lower()


def _read_specimen_request(raw: Mapping[str, Any], where: str, problems: BasketProblems) -> SpecimenRequest:
    site = problems.read_text(raw, "bodysite_code", f"{where}.bodysite_code")
    variant = problems.read_text(raw, "bodycite_code", f"{where}.bodycite_code")
    if site is not None and variant is not None and site != variant:
        what = f"says {variant[:50]!r}, while bodysite_code says {site[:50]!r}"
        problems.add(f"{where}.bodycite_code", what, "send bodysite_code only", "value")
    container = problems.read_text(raw, "container_type", f"{where}.container_type")
    return SpecimenRequest(problems.read_codes(raw, "specimen_code", f"{where}.specimen_code"), site or variant, container)


def _reject_duplicate_guids(guids: Mapping[int, str | None], problems: BasketProblems) -> None:
    """Also of a line that has another problem, so that both are corrected at once."""
    first: dict[str, int] = {}
    for position, guid in guids.items():
        if guid is not None and (before := first.setdefault(guid.lower(), position)) != position:
            what = f"is also the guid of {_ITEMS_FIELD}[{before}]"
            problems.add(f"{_ITEMS_FIELD}[{position}].guid", what, "give each basket item a guid of its own", "duplicate")


def _reject_repeated_items(lines: list[BasketLine], problems: BasketProblems) -> None:
    """A repeat has the same id, biomaterial type, body site and container; another type is no repeat (order rule 2)."""
    first: dict[tuple[str, object], int] = {}
    for line in lines:
        if line.item.allow_multiple_items:
            continue
        for choice in line.chosen_requirements or (None,):
            key = (line.item.id, choice and (choice.specimen_code, choice.option.bodysite_code, choice.option.container_type))
            if (before := first.setdefault(key, line.position)) != line.position:
                what = f"repeats {_ITEMS_FIELD}[{before}], and item {line.item.id!r} may be ordered only once"
                problems.add(f"{_ITEMS_FIELD}[{line.position}]", what, "remove one of the two", "duplicate")
                break


def decode_basket(body: bytes) -> Any:
    """Read JSON in UTF-8, with or without a byte order mark. Raises `DataInvalidError` (also for a key given twice)."""
    plain = exact_json.strip_byte_order_mark(body)
    try:
        return exact_json.loads_strictly(plain)
    except DataInvalidError:
        if _has_lone_surrogate(plain):
            what = "not JSON in UTF-8: one of \\uD800…\\uDFFF stands alone, which is half of a character"
            raise DataInvalidError((Problem("document", what, "send both halves, or the character itself"),)) from None
        raise


def _has_lone_surrogate(body: bytes) -> bool:
    if not _SURROGATE_ESCAPE.search(body):
        return False
    try:
        # integers stay text: Python makes no number of more than 4300 digits
        json.dumps(json.loads(body, parse_int=str), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        pass
    return False
