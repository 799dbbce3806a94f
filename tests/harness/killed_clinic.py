"""A clinic that may be killed at any moment: it asks for baskets, places orders, and keeps a journal of what it has begun.

    python -m tests.harness.killed_clinic SERVICE_SETTINGS FOLDER SEED

It places order after order until there are as many as the file `wanted` in FOLDER says. An order that it had begun when it was
killed is given up: the service has it, or does not. Each answer of the laboratory's API must be as it was at first, in `asked`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from lab_sandbox.config import load_config
from lab_sandbox.demo.lis.transport_files import write_atomically
from lab_sandbox.demo.scenarios import HAEMOLYSED_ITEM, STAGED_ITEM, Scenario
from lab_sandbox.partner.account_file import sandbox_account
from lab_sandbox.partner.basket import Basket, choose_item
from lab_sandbox.partner.client import PartnerClient, open_partner_client
from lab_sandbox.partner.clinic import Clinic, PreparedBasket
from lab_sandbox.partner.errors import Json, PartnerError, decode, encode
from lab_sandbox.partner.order_bundle import LabelSequence
from lab_sandbox.partner.order_generator import OrderPlan
from lab_sandbox.partner.random_source import seeded_random
from tests.harness.installation import REPLACED_ITEM, order_unknown_item
from tests.harness.orders import UNKNOWN_ITEM

KINDS: tuple[tuple[str, ...], ...] = (
    ("001.001", "002.001"),
    ("001.001", STAGED_ITEM),
    ("002.003", HAEMOLYSED_ITEM),
    ("001.001", "002.001", REPLACED_ITEM),
)
"""What is ordered, in turn: plain lines, one reported in versions, one that the laboratory rejects, one that it does not know."""
JOURNAL, WANTED, ASKED = "journal", "wanted", "asked"
_LABELS = 50
_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class Journal:
    """Lines of JSON that are on the disk when they are written."""

    folder: Path

    def write(self, **line: object) -> None:
        with self.folder.joinpath(JOURNAL).open("ab") as file:
            file.write(encode(line) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[Json]:
        """Every line, but one that a kill has torn."""
        file = self.folder / JOURNAL
        found = []
        for line in file.read_bytes().splitlines() if file.exists() else ():
            try:
                found.append(decode(line))
            except ValueError:
                continue
        return found

    def wanted(self) -> int:
        return int((self.folder / WANTED).read_text())


def requisition(seed: str, number: int) -> str:
    return f"kills-{seed}-{number}"


def expected_scenario(number: int) -> Scenario:
    kind = KINDS[number % len(KINDS)]
    unknown = frozenset({UNKNOWN_ITEM}) if REPLACED_ITEM in kind else frozenset[str]()
    plan = OrderPlan(seed=str(number), basket=Basket("C-100", ()))
    rejected = frozenset(kind) & {HAEMOLYSED_ITEM}
    return Scenario(
        name=f"order {number}", title="", plan=plan, unknown_items=unknown, rejected_items=rejected, staged=STAGED_ITEM in kind
    )


def expected_items(number: int) -> list[str]:
    return sorted(UNKNOWN_ITEM if item == REPLACED_ITEM else item for item in KINDS[number % len(KINDS)])


async def ask_everything(client: PartnerClient, number: int) -> tuple[Basket, dict[str, Any]]:
    """What the laboratory's API says about an order of this kind, by question."""
    offer = await client.nomenclature()
    by_id = {item["id"]: item for item in offer}
    rng = seeded_random("kind", number % len(KINDS))
    items = (choose_item(by_id[code], rng, option=by_id[code]["specimen"][0]) for code in KINDS[number % len(KINDS)])
    basket = Basket(client.account.contract, tuple(items))
    answers = {
        "nomenclature": offer,
        "eta": await client.eta(),
        "questionnaire": await client.questionnaire(basket.as_json()),
        "preanalytics": await client.preanalytics(basket.as_json(transport=False)),
    }
    return basket, answers


async def write_reference(client: PartnerClient, folder: Path) -> None:
    """Ask for each kind of order, before anything is killed."""
    asked = [(await ask_everything(client, number))[1] for number in range(len(KINDS))]
    write_atomically(folder, ASKED, encode(asked))


async def place_orders(client: PartnerClient, journal: Journal, seed: str) -> None:
    """Go on after what was begun, without an end."""
    reference = decode(journal.folder.joinpath(ASKED).read_bytes())
    number = max((line["begun"] for line in journal.read() if "begun" in line), default=-1) + 1
    while True:
        if number >= journal.wanted():
            await asyncio.sleep(_PAUSE)
            continue
        try:
            basket, answers = await ask_everything(client, number)
        except PartnerError as exc:  # the laboratory's API is down
            journal.write(unanswered=number, error=str(exc))
            await asyncio.sleep(_PAUSE)
            continue
        expected = reference[number % len(KINDS)]
        wrong = [name for name, answer in answers.items() if encode(answer) != encode(expected[name])]
        journal.write(asked=number, answers=len(answers), wrong=wrong)
        labels = LabelSequence(first=1_000_000 + number * _LABELS)
        clinic = Clinic(client, labels, lambda: datetime.now().astimezone(), f"kills-{seed}")
        plan = OrderPlan(seed=str(number), basket=basket)
        bundle = await clinic.build_bundle(
            plan, PreparedBasket(answers["questionnaire"], tuple(answers["preanalytics"]["specimens"]))
        )
        journal.write(begun=number)
        placed = await clinic.send_bundle(order_unknown_item(bundle))
        assert placed.requisition == requisition(seed, number)
        journal.write(placed=number)
        number += 1


async def run(settings: Path, folder: Path, seed: str) -> None:
    async with open_partner_client(sandbox_account(load_config(settings))) as client:
        await place_orders(client, Journal(folder), seed)


def main() -> None:
    settings, folder, seed = sys.argv[1:]
    asyncio.run(run(Path(settings), Path(folder), seed))


if __name__ == "__main__":
    main()
