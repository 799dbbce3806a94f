"""The nomenclature and the turnaround list of one contract, in the types of the interface's tables."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import Any

from lab_agent.catalogue.model import Contract, Item, SpecimenOption
from lab_agent.catalogue.turnaround import Notice, compute_eta


def nomenclature(contract: Contract) -> list[dict[str, Any]]:
    """Give the nomenclature array (interface: Nomenclature item)."""
    return [_item(item) for item in contract.items.values()]


def turnarounds(contract: Contract, notices: tuple[Notice, ...], now: datetime) -> list[dict[str, Any]]:
    """Give the eta array at `now` (interface: Turnaround item)."""
    by_item: dict[str, list[Notice]] = defaultdict(list)
    for notice in notices:
        by_item[notice.item_id].append(notice)
    return [
        compute_eta(contract.code, item.id, item.turnaround, by_item.get(item.id, ()), now).as_json()
        for item in contract.items.values()
    ]


def _item(item: Item) -> dict[str, Any]:
    return {
        "id": item.id,
        "caption": item.caption,
        "allow_multiple_items": item.allow_multiple_items,
        "lab_id": item.lab_id,
        "lab_caption": item.lab_caption,
        "group": item.group,
        "description": item.description,
        "patient_preparation": list(item.patient_preparation),
        "multiple_specimen": item.multiple_specimen,
        "specimen": [_option(each.option) for each in item.options],
        "required_specimen": [_option(each.option) for each in item.required],
        "price": item.price,
    }


def _option(option: SpecimenOption) -> dict[str, Any]:
    return {
        "description": option.description,
        "specimen_code": option.specimen_code,
        "specimen_name": option.specimen_name,
        "bodysite_code": option.bodysite_code,
        "bodysite_name": option.bodysite_name,
        "container_type": option.container_type,
        "container_name": option.container_name,
    }
