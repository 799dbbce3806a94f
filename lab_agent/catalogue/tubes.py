"""The values of pre-analytics: what is needed, which tube it goes in, and the answer on the wire."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from lab_agent.catalogue.model import Container, Requirement
from lab_agent.catalogue.supporting_info import SupportingInfo


@dataclass(frozen=True, slots=True)
class SpecimenNeed:
    """One requirement of one test of the basket, with the guids of the basket items that it serves."""

    requirement: Requirement
    guids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VolumePart:
    """What a need puts into one tube; `volume` in the container's unit."""

    need: SpecimenNeed
    volume: Decimal

    def can_share_tube_with(self, other: VolumePart) -> bool:
        """Whether the two may share a tube."""
        mine, theirs = self.need.requirement, other.need.requirement
        return mine.item_id not in theirs.incompatible and theirs.item_id not in mine.incompatible

    def sort_key(self) -> tuple[Decimal, str, tuple[str, ...]]:
        """The order among parts, which does not depend on the order of the basket."""
        return self.volume, self.need.requirement.item_id, self.need.guids


@dataclass(frozen=True, slots=True)
class TubeKind:
    """What must be the same for items to share a tube. `minutes` is the time point of a tolerance test."""

    specimen_code: int
    bodysite_code: str | None
    container: Container | None
    method: str
    processing: tuple[str, ...]
    minutes: int | None

    @classmethod
    def for_requirement(cls, requirement: Requirement) -> Iterator[TubeKind]:
        """The kinds that a requirement asks for: one, or one for each time point."""
        option = requirement.option
        points: list[tuple[int | None, str]] = [(point.minutes, point.method) for point in requirement.time_points]
        for minutes, method in points or [(None, requirement.method)]:
            yield cls(option.specimen_code, option.bodysite_code, requirement.container, method, requirement.processing, minutes)

    def sort_key(self) -> tuple[int, str, str, int, str, tuple[str, ...]]:
        """The order of kinds in the answer."""
        container = self.container.type if self.container else ""
        minutes = -1 if self.minutes is None else self.minutes
        return self.specimen_code, self.bodysite_code or "", container, minutes, self.method, self.processing


@dataclass(frozen=True, slots=True)
class Tube:
    """One tube of the answer."""

    kind: TubeKind
    parts: tuple[VolumePart, ...]
    transport_container: Container | None

    @property
    def quantity(self) -> Decimal:
        """The required quantity: what the items need, and the container's dead volume."""
        dead = self.kind.container.dead_volume if self.kind.container else Decimal(0)
        return sum((part.volume for part in self.parts), dead)

    @property
    def guids(self) -> tuple[str, ...]:
        """The guids of every basket item that uses this tube."""
        return tuple(sorted({guid for part in self.parts for guid in part.need.guids}))

    @property
    def item_ids(self) -> tuple[str, ...]:
        """The items that use this tube."""
        return tuple(sorted({part.need.requirement.item_id for part in self.parts}))

    @property
    def processing(self) -> tuple[str, ...]:
        """Storage and transport instructions, with the shortest stability of the items last."""
        kept = [each for part in self.parts if (each := part.need.requirement.stability)]
        shortest = min(kept, key=lambda each: (each.hours, each.text), default=None)
        return (*self.kind.processing, shortest.text) if shortest else self.kind.processing

    def _make_supporting_info(self, second_labels: tuple[str, ...]) -> SupportingInfo:
        values = sorted({value for part in self.parts for value in part.need.requirement.supporting_info})
        kind = self.kind
        return SupportingInfo(str(kind.specimen_code), kind.bodysite_code, kind.minutes, tuple(values), second_labels)

    def sort_key(self) -> tuple[tuple[str, ...], tuple[str, ...], Decimal]:
        """The order among tubes of one kind."""
        return self.item_ids, self.guids, -self.quantity

    def as_json(self, label: str | None, *, include_transport: bool, second_labels: tuple[str, ...] = ()) -> dict[str, Any]:
        """Give the element of `specimens` (interface: Pre-analytics response); `second_labels` are its second barcodes."""
        containers = (self.kind.container, self.transport_container if include_transport else None)
        return {
            "label": label,
            "code": self.kind.specimen_code,
            "collection": {"quantity": self.quantity, "method": self.kind.method},
            "processing": [{"description": text} for text in self.processing],
            "container": [{"description": each.description, "type": each.type} for each in containers if each],
            "guids": list(self.guids),
            "supportingInfo": str(self._make_supporting_info(second_labels)),
        }


@dataclass(frozen=True, slots=True)
class TubeGroup:
    """The tubes of one kind. `lower_bound` is a number below which it cannot be done; equal means proven fewest."""

    kind: TubeKind
    tubes: tuple[Tube, ...]
    lower_bound: int


@dataclass(frozen=True, slots=True)
class Preanalytics:
    """The answer for a whole basket."""

    groups: tuple[TubeGroup, ...]

    @property
    def tubes(self) -> tuple[Tube, ...]:
        """Every tube, in the order of the answer."""
        return tuple(tube for group in self.groups for tube in group.tubes)

    def as_json(
        self, labels: Sequence[str | None], *, include_transport: bool = False, second_labels: Sequence[tuple[str, ...]] = ()
    ) -> dict[str, Any]:
        """Give the response; `labels` (and `second_labels`) have one entry for each tube."""
        each = zip(self.tubes, labels, second_labels or ((),) * len(labels), strict=True)
        return {
            "specimens": [
                tube.as_json(label, include_transport=include_transport, second_labels=more) for tube, label, more in each
            ]
        }
