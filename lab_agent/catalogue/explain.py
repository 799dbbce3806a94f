"""Why pre-analytics answers as it does, in lines for people (`lab-agent preanalytics explain`)."""

from __future__ import annotations

from collections.abc import Iterator

from lab_agent.catalogue.tubes import Preanalytics, Tube, TubeGroup, TubeKind


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
    vessel = tube.kind.container
    dead = vessel.dead_volume if vessel else 0
    unit = f" {vessel.unit}" if vessel and vessel.unit else ""
    room = f" of {vessel.capacity}" if vessel and vessel.capacity is not None else ""
    yield f"  tube {number}: {tube.quantity}{room}{unit}, {dead} of it dead volume"
    for piece in tube.parts:
        need = piece.need.requirement
        why = [f"of {need.volume} that it needs"] if piece.volume != need.volume else []
        why += ["wants its own tube"] if need.own_tube else []
        why += [f"not with {', '.join(sorted(need.incompatible))}"] if need.incompatible else []
        yield f"    {need.item_id}: {piece.volume}" + (f" ({'; '.join(why)})" if why else "")
