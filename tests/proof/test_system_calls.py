"""Each call of an intake and a delivery that writes, syncs, renames or removes fails once, or is the last of its process.

The agent works off one order and its result in one thread (`tests.harness.traced_agent`), so its calls on files are the same
each time: strace lists them once, and then lets the n-th one on a file fail with EIO or ENOSPC, or ends the process before or
after it. What only a power cut shows, that something was never synced, cannot be seen so: what a killed process wrote is in the
memory of the system.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path

import pytest

from lab_agent.shared.conditions.model import ConditionId
from tests.harness.proof import SHARE, Figures, share_of
from tests.harness.traced_calls import Fault, TracedCall
from tests.harness.traced_laboratory import PHASES, Outcome, ServiceThread, TracedLaboratory

pytestmark = [pytest.mark.proof, pytest.mark.timeout(4 * 3600)]

SEED = 20
FEW = {"handover": 2, "results": 3, "commits": 3, "others": 2}
"""How many faults of each group a short run tries, which has a minute: a share of all of them would take five."""
INTAKE, DELIVERY = PHASES
STORE = {ConditionId.STORE_UNREACHABLE, ConditionId.STORE_DISK_FULL}
_DATABASE = re.compile(r"lab\.db(-wal|-shm)?$")
_PROBE = re.compile(r"(orders|results(/done|/failed)?)/\.\w+\.tmp$")
_ORDER = re.compile(r"orders/\.?ORDER(\.part|\.json)$")
_RESULT = re.compile(r"results/(done/)?(\.claimed-\w+-)?result\.json$")


@dataclass(frozen=True, slots=True)
class Step:
    """A call of a phase, with those before and after it."""

    phase: str
    call: TracedCall
    before: TracedCall | None
    after: TracedCall | None

    @property
    def is_in_database(self) -> bool:
        return bool(_DATABASE.match(self.call.path))

    @property
    def is_at_checkpoint(self) -> bool:
        """Whether the log of the database is synced before it is written into the database, as at the end of a process."""
        return self.call.name == "fdatasync" and self.after is not None and self.after.path == "lab.db"

    @property
    def is_at_commit(self) -> bool:
        """Whether it is the first or last call of a commit between which something happens to an order or a result."""
        return self.is_in_database and any(each is not None and is_named(each) for each in (self.before, self.after))

    @property
    def is_probe(self) -> bool:
        """Whether it removes the file with which a folder is tried."""
        return self.call.name == "unlink" and bool(_PROBE.match(self.call.path)) and not self._was_written

    @property
    def _was_written(self) -> bool:
        """A file that was written was renamed just before."""
        return self.before is not None and self.before.name == "rename" and self.before.path == self.call.path

    def faults(self) -> tuple[Fault, ...]:
        """What is tried with it: all faults, but for what would only repeat another one.

        To be killed after a call is to be killed before the same call that follows at once. Of the hundreds of calls that write
        a commit to the log of the database, or that log into the database, each has one of the faults, in turn.
        """
        repeats, is_repeated = self._is_like(self.before), self._is_like(self.after)
        faults = (Fault.EIO, Fault.ENOSPC, Fault.KILLED_BEFORE)
        if repeats and is_repeated:
            return (faults[self.call.number % len(faults)],)
        return faults if is_repeated else (*faults, Fault.KILLED_AFTER)

    def _is_like(self, other: TracedCall | None) -> bool:
        return other is not None and (other.name, other.path) == (self.call.name, self.call.path)


def is_named(call: TracedCall) -> bool:
    """Whether it is about the file of an order or a result under a name that lasts."""
    return bool(_ORDER.match(call.path) or _RESULT.match(call.path))


def urgency(step: Step, fault: Fault) -> int:
    """What is tried first where not all is: a commit that fails before somebody is told, and a kill after that."""
    ends = step.after is None or not is_named(step.after)
    if step.is_in_database:
        return 0 if step.call.name == "fdatasync" and not ends and not fault.kills else 2
    if not (is_named(step.call) and fault.kills):
        return 2
    return 0 if ends and fault is Fault.KILLED_AFTER else 1


GROUPS: dict[str, Callable[[Step], bool]] = {
    "handover": lambda step: step.call.path.startswith("orders") and not step.is_probe,
    "results": lambda step: bool(_RESULT.match(step.call.path)),
    "commits": lambda step: step.is_at_commit,
    "others": lambda step: not any(is_in(step) for name, is_in in GROUPS.items() if name != "others"),
}


@pytest.fixture(scope="module")
def service() -> Iterator[ServiceThread]:
    service = ServiceThread()
    yield service
    service.close()


@pytest.fixture(scope="module")
def steps(service: ServiceThread, tmp_path_factory: pytest.TempPathFactory, figures: Figures) -> list[Step]:
    """All calls of an undisturbed intake and delivery, in turn."""
    lab = TracedLaboratory.create(tmp_path_factory.mktemp("undisturbed") / "lab", service, SEED)
    found = list[Step]()
    for phase in PHASES:
        calls = [None, *lab.list_calls(phase), None]
        found += [
            Step(phase, call, before, after)
            for (before, call), after in zip(pairwise(calls[:-1]), calls[2:], strict=True)
            if call is not None
        ]
        lab.take_orders()
    lab.check_once()
    assert lab.alerts() == []
    figures.add(calls=len(found))
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_call_that_fails_loses_nothing_and_repeats_nothing(
    group: str, steps: list[Step], service: ServiceThread, tmp_path: Path, figures: Figures
) -> None:
    tried = choose([(step, fault) for step in steps if GROUPS[group](step) for fault in step.faults()], FEW[group])
    outcomes = list[Outcome]()
    for number, (step, fault) in zip(count(1), tried):
        lab = TracedLaboratory.create(tmp_path / str(number), service, SEED)
        lab.about = f"seed {SEED}, {step.phase}: {fault.name} at {step.call}"
        outcomes.append(live_through(lab, step, fault, figures))
        shutil.rmtree(lab.folder)
        figures.progress(number, len(tried))
    assert outcomes.count(Outcome.NOT_REACHED) <= len(tried) // 10, f"seed {SEED}: another way each time, {outcomes}"


def choose(faults: Sequence[tuple[Step, Fault]], at_least: int) -> list[tuple[Step, Fault]]:
    """All of them; of a share, some by chance, the urgent ones first."""
    assert faults
    if SHARE >= 1:
        return list(faults)
    drawn = random.Random(SEED).sample(faults, len(faults))
    wanted = share_of(len(faults), at_least=at_least) if SHARE > 0.1 else at_least
    return sorted(drawn, key=lambda each: urgency(*each))[:wanted]


def live_through(lab: TracedLaboratory, step: Step, fault: Fault, figures: Figures) -> Outcome:
    """Let the call fail, start again where the agent has ended, and check all at the end."""
    if step.phase == DELIVERY:
        lab.go_through(INTAKE)
        lab.take_orders()
    outcome = lab.fail(step.phase, step.call, fault)
    lab.check_acknowledged()
    assert outcome is not Outcome.UNFINISHED, lab.describe()
    lab.take_orders()
    if not lab.received:
        lab.go_through(INTAKE)
        lab.take_orders()
    if outcome is not Outcome.WENT_ON or step.phase == INTAKE:
        lab.go_through(DELIVERY)
        lab.take_orders()
    lab.check_once()
    alarms = lab.alerts()
    if outcome is Outcome.WENT_ON:
        assert len(alarms) == 1 if is_told(step, fault) else not alarms, f"told: {alarms}\n{lab.describe()}"
        assert set(alarms) <= expected_conditions(step), f"told: {alarms}\n{lab.describe()}"
    if outcome is not Outcome.NOT_REACHED:
        figures.add(faults=1, **{outcome.value.replace(" ", "_"): 1}, alarms=len(alarms))
        figures.add(tried_again_unnoticed=int(outcome is Outcome.WENT_ON and not alarms), lost=0, twice=0)
    return outcome


def is_told(step: Step, fault: Fault) -> bool:
    """Whether an error that the agent survives is one that people hear of.

    A commit that fails is an outage of the database, and what cannot be done in a folder when it is looked at, or with a result,
    one of the laboratory system. Nobody has to know of the rest: an order is handed over at the next attempt, seconds later; a
    mark follows at the next number; and what a process leaves of the log of the database at its end, the next one takes over.
    """
    if step.call.path == "lab.db.lock":
        return fault is Fault.EIO  # on a full disk it has the lock without a name in it
    if step.is_in_database:
        return step.call.name != "unlink" and step.call.path != "lab.db" and not step.is_at_checkpoint
    return step.is_probe or bool(_RESULT.match(step.call.path))


def expected_conditions(step: Step) -> set[ConditionId]:
    return STORE if step.call.path.startswith("lab.db") else {ConditionId.LIS_UNAVAILABLE}
