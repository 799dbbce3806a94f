"""Which tubes a whole basket needs (interface: Pre-analytics request and response), and why, in lines for people.

Items share a tube where biomaterial type, body site, container, collection method, processing and time point are the same.
Volumes add up, and each tube's dead volume comes on top; an item that needs more than one tube holds fills tubes of its own
and shares only what is left over. Items that need their own tube, or do not go together, are kept apart. Required biomaterial
types are added here. The number of tubes is the fewest (see `bin_packing`); the order of the items changes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from math import lcm

from lab_agent.catalogue.basket import BasketLine
from lab_agent.catalogue.bin_packing import Packing, pack
from lab_agent.catalogue.model import Catalogue, Requirement
from lab_agent.catalogue.tubes import Preanalytics, SpecimenNeed, Tube, TubeGroup, TubeKind, VolumePart


def calculate(catalogue: Catalogue, lines: Iterable[BasketLine]) -> Preanalytics:
    """Calculate the tubes of these lines."""
    parts_of: dict[TubeKind, tuple[list[VolumePart], list[VolumePart]]] = defaultdict(lambda: ([], []))
    for need in _specimen_needs(lines):
        whole, rest = _split_need(need)
        count = _full_tube_count(need)
        for kind in TubeKind.for_requirement(need.requirement):
            full, shared = parts_of[kind]
            full.extend([whole] * count)
            if rest is not None:
                shared.append(rest)
    kinds = sorted(parts_of.items(), key=lambda each: each[0].sort_key())
    return Preanalytics(tuple(_build_group(catalogue, kind, full, shared) for kind, (full, shared) in kinds))


def _specimen_needs(lines: Iterable[BasketLine]) -> Iterator[SpecimenNeed]:
    several: dict[str, list[BasketLine]] = defaultdict(list)
    for line in lines:
        for chosen in line.chosen_requirements:
            yield SpecimenNeed(chosen, line.guids)
        if line.item.multiple_specimen:
            several[line.item.id].append(line)
        else:
            for required in line.item.required:
                yield SpecimenNeed(required, line.guids)
    for repeats in several.values():
        yield from _needs_of_repeated_item(repeats)


def _needs_of_repeated_item(lines: list[BasketLine]) -> Iterator[SpecimenNeed]:
    """Several lines of a multiple_specimen item, each with another type, are one test: it needs its required types once."""
    by_choice: dict[Requirement | None, list[tuple[str, ...]]] = defaultdict(list)
    for line in lines:
        for choice in line.chosen_requirements or (None,):
            by_choice[choice].append(line.guids)
    for times in zip_longest(*(sorted(each) for each in by_choice.values()), fillvalue=()):
        guids = tuple(sorted({guid for each in times for guid in each}))
        for required in lines[0].item.required:
            yield SpecimenNeed(required, guids)


def _full_tube_count(need: SpecimenNeed) -> int:
    """How many tubes the need fills to the brim."""
    usable = need.requirement.container.usable_volume if need.requirement.container else None
    return int(need.requirement.volume // usable) if usable is not None and need.requirement.volume > usable else 0


def _split_need(need: SpecimenNeed) -> tuple[VolumePart, VolumePart | None]:
    """The part that fills a tube, and the rest (None if there is none)."""
    requirement = need.requirement
    usable = requirement.container.usable_volume if requirement.container else None
    if usable is None or requirement.volume <= usable:
        return VolumePart(need, requirement.volume), VolumePart(need, requirement.volume)
    rest = requirement.volume % usable
    return VolumePart(need, usable), VolumePart(need, rest) if rest else None


def _build_group(catalogue: Catalogue, kind: TubeKind, full: list[VolumePart], partial: list[VolumePart]) -> TubeGroup:
    alone = [*full, *(part for part in partial if part.need.requirement.own_tube)]
    shared = sorted((part for part in partial if not part.need.requirement.own_tube), key=VolumePart.sort_key)
    packing = _pack_parts(kind, shared)
    contents = [(part,) for part in alone] + [tuple(shared[i] for i in tube) for tube in packing.tubes]
    transport = (
        catalogue.containers.get(kind.container.transport_type) if kind.container and kind.container.transport_type else None
    )
    tubes = sorted((Tube(kind, content, transport) for content in contents), key=Tube.sort_key)
    return TubeGroup(kind, tuple(tubes), len(alone) + packing.lower_bound)


def _pack_parts(kind: TubeKind, parts: list[VolumePart]) -> Packing:
    usable = kind.container.usable_volume if kind.container else None
    volumes = [part.volume for part in parts]
    scale = lcm(*(each.as_integer_ratio()[1] for each in (*volumes, usable) if each is not None))
    capacity = None if usable is None else int(usable * scale)
    sizes = [int(volume * scale) for volume in volumes]
    if not any(part.need.requirement.incompatible for part in parts):
        return pack(sizes, capacity)
    return pack(sizes, capacity, lambda i, j: parts[i].can_share_tube_with(parts[j]))


def explain_preanalytics(preanalytics: Preanalytics) -> Iterator[str]:
    """Give the lines: each kind of tube, how many and why not fewer, and what is in each tube."""
    for group in preanalytics.groups:
        yield f"{_describe_kind(group.kind)}: {_describe_count(group)}"
        for number, tube in enumerate(group.tubes, start=1):
            yield from _describe_tube(number, tube)


def _describe_kind(kind: TubeKind) -> str:
    container = f"{kind.container.type} ({kind.container.name})" if kind.container else "any container"
    place = f", body site {kind.bodysite_code}" if kind.bodysite_code else ""
    time = f", {kind.minutes} minutes" if kind.minutes is not None else ""
    return f"type {kind.specimen_code}, {container}{place}{time}, {kind.method}"


def _describe_count(group: TubeGroup) -> str:
    count = len(group.tubes)
    if count == group.lower_bound:
        return f"{count} tube{'s' if count > 1 else ''}, and fewer are not possible"
    return f"{count} tubes; fewer than {group.lower_bound} are not possible"


def _describe_tube(number: int, tube: Tube) -> Iterator[str]:
    container = tube.kind.container
    dead = container.dead_volume if container else 0
    unit = f" {container.unit}" if container and container.unit else ""
    capacity = f" of {container.capacity}" if container and container.capacity is not None else ""
    yield f"  tube {number}: {tube.quantity}{capacity}{unit}, {dead} of it dead volume"
    for part in tube.parts:
        need = part.need.requirement
        why = [f"of {need.volume} that it needs"] if part.volume != need.volume else []
        why += ["needs its own tube"] if need.own_tube else []
        why += [f"not with {', '.join(sorted(need.incompatible))}"] if need.incompatible else []
        yield f"    {need.item_id}: {part.volume}" + (f" ({'; '.join(why)})" if why else "")
