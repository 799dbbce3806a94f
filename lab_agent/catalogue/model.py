"""What the laboratory offers, as frozen values: items, specimens, containers, questions, contracts.

The laboratory's API answers baskets from it and the rules check orders by it, so that an order made from our own answers is
never rejected because of a different reading of the same tables. Volumes are exact decimals in the container's own unit, times
are hours or minutes as named. Codes are compared as text (interface: where numbers and strings meet, leading zeros stay).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from lab_agent.catalogue.turnaround import Notice, Turnaround
from lab_agent.shared.errors import Problem, UnknownContractError
from lab_agent.shared.label_pools import IdentifierPattern


@dataclass(frozen=True, slots=True)
class SpecimenOption:
    """One biomaterial type as the nomenclature shows it (interface: Nomenclature item, specimen option)."""

    description: str
    specimen_code: int
    specimen_name: str
    bodysite_code: str | None = None
    bodysite_name: str = ""
    container_type: str | None = None
    container_name: str = ""


@dataclass(frozen=True, slots=True)
class Container:
    """A tube or other container. `capacity` None means that it has no limit (a slide box, a swab)."""

    type: str
    name: str
    description: str
    capacity: Decimal | None = None
    dead_volume: Decimal = Decimal(0)
    unit: str = ""
    transport_type: str | None = None

    @property
    def usable_volume(self) -> Decimal | None:
        """The volume that items may use: capacity without dead volume. None where there is no limit."""
        return None if self.capacity is None else self.capacity - self.dead_volume


@dataclass(frozen=True, slots=True)
class TimePoint:
    """One sample of a tolerance test: minutes after the load, and the collection method of that sample."""

    minutes: int
    method: str


@dataclass(frozen=True, slots=True)
class Stability:
    """How long the specimen keeps, in hours, and the sentence that says so."""

    hours: int
    text: str


@dataclass(frozen=True, slots=True)
class Requirement:
    """What one item needs of one biomaterial type: how much, how it is collected and stored, and what may share its tube."""

    item_id: str
    option: SpecimenOption
    container: Container | None
    volume: Decimal
    method: str
    processing: tuple[str, ...] = ()
    stability: Stability | None = None
    own_tube: bool = False
    incompatible: frozenset[str] = frozenset()
    time_points: tuple[TimePoint, ...] = ()
    supporting_info: tuple[str, ...] = ()

    @property
    def specimen_code(self) -> str:
        """The code of the biomaterial type, as text."""
        return str(self.option.specimen_code)

    @property
    def methods(self) -> frozenset[str]:
        """Every collection method that pre-analytics may answer for this requirement."""
        return frozenset(point.method for point in self.time_points) or frozenset((self.method,))


class QuestionType(StrEnum):
    """The types of questionnaire item that the interface shows."""

    GROUP = "group"
    STRING = "string"
    CHOICE = "choice"


@dataclass(frozen=True, slots=True)
class AnswerOption:
    """One option of a choice, flat as the interface shows it."""

    system: str
    code: str


@dataclass(frozen=True, slots=True)
class Question:
    """One question or group of the laboratory. `parent` is the linkId of the group that holds it; the top group has none."""

    link_id: str
    text: str
    type: QuestionType
    repeats: bool = False
    parent: str | None = None
    options: tuple[AnswerOption, ...] = ()


@dataclass(frozen=True, slots=True)
class QuestionRef:
    """A question that an item asks; if not required, the answer is recommended."""

    link_id: str
    required: bool


@dataclass(frozen=True, slots=True)
class Item:
    """One orderable test as one contract offers it (interface: Nomenclature item)."""

    id: str
    caption: str
    price: Decimal
    turnaround: Turnaround
    allow_multiple_items: bool = False
    lab_id: str = ""
    lab_caption: str = ""
    group: str = ""
    description: str = ""
    patient_preparation: tuple[str, ...] = ()
    multiple_specimen: bool = False
    options: tuple[Requirement, ...] = ()
    required: tuple[Requirement, ...] = ()
    question_refs: tuple[QuestionRef, ...] = ()
    second_label_pattern: IdentifierPattern | None = None
    old_order_pattern: IdentifierPattern | None = None

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """Options and required ones together."""
        return self.options + self.required

    @property
    def option_types(self) -> frozenset[str]:
        """The codes of the biomaterial types to choose from; empty where there is no choice."""
        return frozenset(each.specimen_code for each in self.options)

    @property
    def required_types(self) -> frozenset[str]:
        """The codes of the mandatory biomaterial types."""
        return frozenset(each.specimen_code for each in self.required)

    @property
    def time_points(self) -> tuple[int, ...]:
        """Minutes of a tolerance test's samples, ascending; empty for every other item."""
        return tuple(sorted({point.minutes for each in self.requirements for point in each.time_points}))

    def requirements_of_type(self, specimen_code: str | int) -> tuple[Requirement, ...]:
        """Every requirement of that biomaterial type; empty if the item does not take it."""
        return tuple(each for each in self.requirements if each.specimen_code == str(specimen_code))

    def container_types(self, specimen_code: str | int) -> frozenset[str]:
        """The containers that this item takes for a specimen of that type; empty where it takes any."""
        return frozenset(each.container.type for each in self.requirements_of_type(specimen_code) if each.container)


@dataclass(frozen=True, slots=True)
class Contract:
    """One nomenclature: the items that a contract offers, in the catalogue's order, with its own prices and captions.

    `cache_lifetime_seconds` is how long partners may keep it; None means the installation's setting.
    """

    code: str
    name: str
    items: Mapping[str, Item]
    cache_lifetime_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Catalogue:
    """One version of everything that the laboratory offers. `version` changes with any cell of any table."""

    version: str
    contracts: Mapping[str, Contract]
    containers: Mapping[str, Container]
    questions: Mapping[str, Question]
    notices: tuple[Notice, ...] = ()

    def find_contract(self, code: str) -> Contract | None:
        """The contract, or None."""
        return self.contracts.get(code)

    def contract(self, code: str) -> Contract:
        """The contract; raises `UnknownContractError`, which shows nothing of the others."""
        found = self.contracts.get(code)
        if found is None:
            raise unknown_contract_error(code)
        return found

    def item(self, contract: str, item_id: str) -> Item | None:
        """The item as this contract offers it, or None; raises `UnknownContractError`."""
        return self.contract(contract).items.get(item_id)


def unknown_contract_error(code: str) -> UnknownContractError:
    """The same error for a contract that does not exist and for one that the caller may not see."""
    return UnknownContractError((Problem("contract", f"no contract {code[:50]!r} here", "use the code agreed with us"),))
