"""The tube arithmetic of a whole basket (interface: Pre-analytics request and response).

Items share a tube where biomaterial type, body site, container, collection method, processing and time point are the same.
Volumes add up, and each tube's dead volume comes on top; an item that needs more than one tube holds fills tubes of its own
and shares only what is left over. Items that need their own tube, or do not go together, are kept apart. Required
biomaterial types are added here. The number of tubes is the fewest (see `packing`), and the answer is the same in whatever
order the items come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import zip_longest
from math import lcm

from lab_agent.catalogue.basket import Line
from lab_agent.catalogue.items import Catalogue, Requirement
from lab_agent.catalogue.packing import Packing, pack
from lab_agent.catalogue.tubes import Group, Kind, Need, Piece, Preanalytics, Tube


def calculate(catalogue: Catalogue, lines: Iterable[Line]) -> Preanalytics:
    """Calculate the tubes of these lines."""
    held: dict[Kind, list[Piece]] = defaultdict(list)
    full: dict[Kind, list[Piece]] = defaultdict(list)
    for need in _needs(lines):
        for kind in Kind.of(need.requirement):
            whole, rest = _divide(need)
            full[kind].extend([whole] * _times(need))
            if rest is not None:
                held[kind].append(rest)
    kinds = sorted(held.keys() | full.keys(), key=Kind.rank)
    return Preanalytics(tuple(_group(catalogue, kind, full[kind], held[kind]) for kind in kinds))


def _needs(lines: Iterable[Line]) -> Iterator[Need]:
    several: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        for chosen in line.chosen:
            yield Need(chosen, line.guids)
        if line.item.multiple_specimen:
            several[line.item.id].append(line)
        else:
            for required in line.item.required:
                yield Need(required, line.guids)
    for repeats in several.values():
        yield from _required_once(repeats)


def _required_once(lines: list[Line]) -> Iterator[Need]:
    """Several lines of a multiple_specimen item, each with another type, are one test: it needs its required types once."""
    by_choice: dict[tuple[Requirement, ...], list[tuple[str, ...]]] = defaultdict(list)
    for line in lines:
        for choice in line.chosen or (None,):
            by_choice[(choice,) if choice else ()].append(line.guids)
    for times in zip_longest(*(sorted(each) for each in by_choice.values()), fillvalue=()):
        guids = tuple(sorted({guid for each in times for guid in each}))
        for required in lines[0].item.required:
            yield Need(required, guids)


def _times(need: Need) -> int:
    """How many tubes the need fills to the brim."""
    usable = need.requirement.container.usable if need.requirement.container else None
    return int(need.requirement.volume // usable) if usable is not None and need.requirement.volume > usable else 0


def _divide(need: Need) -> tuple[Piece, Piece | None]:
    """The piece that fills a tube, and the piece that is left over (None if nothing is)."""
    requirement = need.requirement
    usable = requirement.container.usable if requirement.container else None
    if usable is None or requirement.volume <= usable:
        return Piece(need, requirement.volume), Piece(need, requirement.volume)
    rest = requirement.volume % usable
    return Piece(need, usable), Piece(need, rest) if rest else None


def _group(catalogue: Catalogue, kind: Kind, full: list[Piece], pieces: list[Piece]) -> Group:
    alone = [*full, *(piece for piece in pieces if piece.need.requirement.own_tube)]
    shared = sorted((piece for piece in pieces if not piece.need.requirement.own_tube), key=Piece.rank)
    packing = _pack(kind, shared)
    contents = [(piece,) for piece in alone] + [tuple(shared[i] for i in tube) for tube in packing.tubes]
    transport = catalogue.containers.get(kind.container.transport) if kind.container and kind.container.transport else None
    tubes = sorted((Tube(kind, content, transport) for content in contents), key=Tube.rank)
    return Group(kind, tuple(tubes), len(alone) + packing.lower_bound)


def _pack(kind: Kind, pieces: list[Piece]) -> Packing:
    usable = kind.container.usable if kind.container else None
    volumes = [piece.volume for piece in pieces]
    scale = _common_denominator([*volumes, usable or Decimal(0)])
    room = None if usable is None else int(usable * scale)
    return pack([int(volume * scale) for volume in volumes], room, lambda i, j: pieces[i].goes_with(pieces[j]))


def _common_denominator(volumes: list[Decimal]) -> int:
    return lcm(*(Fraction(volume).denominator for volume in volumes))
