"""The plan of a day as data: what happens to the laboratory, the clinic, the service and the workers, and when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

HOUR = 3600
FIRST_SHARED = 100
"""Numbers of orders from tubes of another one begin here."""
DAY = 24 * HOUR
STATUSES = ("on-hold", "draft", "in-progress", "received")
"""Statuses that somebody else puts a Task into."""
OUTAGES = ("refused", "500", "503", "lost")
_NOT_WITH_SHARED_TUBES = frozenset({"withdraw", "withdraw_order", "late_line", "set_aside", "request_again", "swapped"})
"""What would leave open which of two orders a tube means: of a line that was withdrawn nobody can say whether it was done."""
STYLES = ("order", "lines", "number", "barcode")
"""How the laboratory names what it reports on: by our keys, by its own number beside the tube, or by the tube."""


class Step(NamedTuple):
    """What happens `at` a second of the day. `depth`: it waits until something is going on, and for so many turns of that."""

    at: int
    kind: str
    order: int = 0
    """The order that it is about, or the worker, or how many requests pass before."""
    line: int = 0
    more: Any = None
    depth: int = 0


@dataclass(frozen=True)
class DayPlan:
    """A day: how the agent is set up, and the steps in their order."""

    seed: object
    options: dict[str, Any]
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        """As Python that replays it."""
        steps = "".join(f"    {tuple(each)!r},\n" for each in self.steps)
        return f"await replay({self.seed!r}, [\n{steps}])"


def plan_day(seed: object) -> DayPlan:
    rng = Random(f"plan of {seed!r}")
    options = {
        "acknowledge_status": rng.choice([None, None, "accepted"]),
        "on_line_error": rng.choice(["cancel_line", "cancel_line", "cancel_order"]),
        "stale_code": rng.choice([409, 412]),
        "two_systems": rng.random() < 0.5,
        "can_confirm": rng.random() < 0.75,
    }
    steps = [step for number in range(rng.randint(2, 6)) for step in _order_steps(rng, number)]
    steps += [*_outage_steps(rng), *_worker_steps(rng)]
    rng = Random(f"tubes and senders of {seed!r}")
    options |= {"constant_ids": rng.random() < 0.3, "names_patient": rng.choice([0.0, 0.5, 1.0])}
    steps = _share_tubes(rng, steps)
    if rng.random() < 0.3:
        options["clocks"] = True
        steps += _clock_steps(rng, steps)
    if options["constant_ids"]:
        steps += _back_steps(rng, steps)
    return DayPlan(seed, options, tuple(sorted(steps, key=lambda step: step.at)))


def _share_tubes(rng: Random, steps: list[Step]) -> list[Step]:
    """Of some orders the tubes are those of a further one, too: of the same patient's soon, of another one's later in the day.

    What the laboratory says of the first one after that names the tubes as well.
    """
    shared: set[int] = set()
    more: list[Step] = []
    for step in steps:
        chance = rng.random()
        if step.kind == "order" and step.more is None and chance < 0.3:
            number = FIRST_SHARED + step.order
            shared |= {step.order, number}
            soon = chance < 0.15
            at = step.at + (rng.randrange(HOUR) if soon else rng.randrange(HOUR, 5 * HOUR))
            other = rng.choice([step.line, rng.randrange(24)])
            more.append(Step(at, "add_on" if soon else "reuse", number, other, step.order))
            more += [each for line in range(4) for each in _tube_steps(rng, number, line, at)]
            later = at + rng.randrange(HOUR, 8 * HOUR)
            more += [Step(later + line, "correction", step.order, line, "barcode") for line in range(4) if rng.random() < 0.5]
    return [*(each for each in steps if each.order not in shared or each.kind not in _NOT_WITH_SHARED_TUBES), *more]


def _tube_steps(rng: Random, order: int, line: int, placed: int) -> Iterator[Step]:
    """Results of a line that are named by its tube, most of them."""
    for step in _result_steps(rng, order, line, placed):
        if step.kind not in _NOT_WITH_SHARED_TUBES:
            yield step if step.more not in STYLES or rng.random() < 0.3 else step._replace(more="barcode")


def _clock_steps(rng: Random, steps: list[Step]) -> list[Step]:
    """The clocks of the laboratory systems are put right, or an hour comes twice: often between a result and its correction."""
    changes: list[Step] = [Step(rng.randrange(HOUR, DAY), "clock", more=rng.choice([-HOUR, -1200, -90, 600, HOUR]))]
    for step in steps:
        if step.kind in {"result", "preliminary"} and rng.random() < 0.25:
            at, back = step.at + rng.randrange(1, HOUR), rng.choice([90, 1200, HOUR])
            changes += [Step(at, "clock", more=-back), step._replace(at=at + rng.randrange(back), kind="correction")]
    return changes


def _back_steps(rng: Random, steps: list[Step]) -> list[Step]:
    """Some results are corrected, corrected back, and corrected again to what they were before that."""
    back: list[Step] = []
    for step in steps:
        if step.kind == "result" and rng.random() < 0.4:
            at = step.at
            for kind in ("correction", "back", "back")[: rng.randrange(1, 4)]:
                at += rng.choice([0, rng.randrange(2 * HOUR)])
                back.append(step._replace(at=at, kind=kind))
    return back


def _order_steps(rng: Random, number: int) -> Iterator[Step]:
    """An order over the day, what the partner does with it, and what the laboratory reports."""
    placed = rng.randrange(30 * 60, 14 * HOUR)
    yield Step(placed, "order", number, rng.randrange(24), "spoiled" if rng.random() < 0.2 else None)
    for line in range(4):
        yield from _result_steps(rng, number, line, placed)
    for kind, likely in (("note", 0.6), ("withdraw", 0.2), ("withdraw_order", 0.08), ("late_line", 0.12), ("set_aside", 0.12)):
        if rng.random() < likely:
            at = placed + rng.choice([rng.randrange(60), rng.randrange(HOUR), rng.randrange(9 * HOUR)])
            more = rng.choice(STATUSES) if kind == "set_aside" else None
            yield Step(at, kind, number, rng.randrange(5), more, rng.choice([0, rng.randrange(1, 60)]))
            if kind == "set_aside" and rng.random() < 0.7:
                yield Step(at + rng.randrange(60, 3 * HOUR), "request_again", number)


def _result_steps(rng: Random, order: int, line: int, placed: int) -> Iterator[Step]:
    """What the laboratory reports of a line: hours later a result, by and by its corrections; or it cannot do it."""
    at = placed + rng.randrange(HOUR // 2, 8 * HOUR)
    chance = rng.random()
    if chance < 0.1:
        yield Step(at, "reject", order, line)
    elif chance < 0.8:
        style = rng.choice(STYLES)
        if rng.random() < 0.2:
            yield Step(at - rng.randrange(60, HOUR // 2), "preliminary", order, line, style)
        if rng.random() < 0.1:  # in the middle of receiving it
            yield Step(at, "crash", rng.randrange(2), rng.randrange(8), 30)
        yield Step(at, "swapped" if rng.random() < 0.1 else "result", order, line, style)
        while rng.random() < 0.3:
            soon = rng.random() < 0.6  # while the version before is matched and delivered
            at += 0 if soon else rng.randrange(4 * HOUR)
            if soon and rng.random() < 0.3:
                yield Step(at, "crash", rng.randrange(2), rng.randrange(40), 30)
            kind = rng.choice(["correction", "correction", "correction", "shorter", "reject"])
            yield Step(at, kind, order, line, style, rng.randrange(1, 40) if soon else 0)


def _outage_steps(rng: Random) -> Iterator[Step]:
    """Outages with their begin and end, of the service, of the laboratory systems, of what they take, of the catalogue."""
    for kind, likely in (("service", 0.6), ("service", 0.2), ("lis", 0.5), ("lis_rejects", 0.15), ("catalogue", 0.1)):
        if rng.random() < likely:
            at, length = rng.randrange(HOUR, 20 * HOUR), rng.choice([60, 600, HOUR, 3 * HOUR])
            yield Step(at, f"{kind}_down", more=rng.choice(OUTAGES) if kind == "service" else None, line=rng.randrange(2))
            yield Step(at + length, f"{kind}_up", line=0)


def _worker_steps(rng: Random) -> Iterator[Step]:
    """Crashes, restarts and stops of a worker, and single requests that come to grief."""
    for _ in range(rng.randrange(4)):
        down = rng.choice([1, 30, 900, 2 * HOUR])
        yield Step(rng.randrange(DAY), "crash", rng.randrange(2), rng.choice([rng.randrange(10), rng.randrange(120)]), down)
    if rng.random() < 0.4:
        yield Step(rng.randrange(DAY), "restart", rng.randrange(2))
    for _ in range(rng.randrange(3)):
        stopped = rng.choice([20, 400, HOUR])
        yield Step(rng.randrange(DAY), "freeze", rng.randrange(2), rng.choice([rng.randrange(12), rng.randrange(60)]), stopped)
    for _ in range(rng.randrange(3)):
        yield Step(rng.randrange(DAY // 2), "fault", rng.randrange(2), rng.randrange(3), "unanswered")
    for _ in range(rng.randrange(7)):
        kind = rng.choice(["lost", "lost", "lost", "refused", "500", "503", "away", "short"])
        yield Step(rng.randrange(DAY), "fault", rng.randrange(2), rng.randrange(40), kind)
