"""A day of the agent: 24 simulated hours with a timetable, two workers, and everything that may go wrong, by a plan.

Time, chance and network come from the plan alone, so that the same plan is the same day.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from random import Random
from typing import Any

from lab_agent.operations.schedule import LeasedTask, LisHealth, PollInterval, PollTask
from lab_agent.orders import order_actions
from lab_agent.orders.order_assessment import reassess
from lab_agent.orders.unconfirmed_orders import UnconfirmedOrders
from lab_agent.results import result_actions
from lab_agent.results.records import HoldReason, ReportRecord
from lab_agent.results.result_inbox import ResultCollector
from lab_agent.shared.errors import InvalidTransitionError
from lab_agent.shared.ids import OrderKey
from lab_agent.shared.metrics import Metrics
from lab_agent.shared.state_machines import OrderState, ReportState
from lab_agent.store.unit_of_work import Store
from tests.harness.databases import InlineStore
from tests.harness.fault_injection import PlannedFault, SimulatedLis
from tests.harness.orders import catalogue, procedure_requests, templates
from tests.harness.world import TERMINAL_STATUSES, SimulatedAgent, World, repeatable_process
from tests.simulation.day_laboratory import DayLaboratory
from tests.simulation.day_laws import DayLaws
from tests.simulation.day_plan import DAY, FIRST_SHARED, DayPlan, Step, plan_day
from tests.simulation.shrink import shrink
from tests.simulation.simulation_run import SimulatedOrder, Simulation
from tests.simulation.trace import Trace, TracedStore

POLL, LONGEST_POLL, RECONCILE, COLLECT, CONFIRM, OPERATE = 600, 3600, 3600, 1800, 7200, 3 * 3600
"""Seconds between two runs of what each worker does at intervals; a person looks now and then, too."""
_AGAIN = 1800
"""Seconds after which the laboratory tries to report on what it has not got yet."""
_LONGEST_REST = 100_000
_SOMEBODY_ELSE = {"name": [{"family": "Zimmer", "given": ["Zoltan", "Z."]}], "birthDate": "1931-07-09", "gender": "other"}
"""Nobody of the generated patients."""
_ABOUT_VERSIONS = frozenset({HoldReason.CONFLICTING_VERSION, HoldReason.QUESTION})
"""What is held for these reasons may have been overtaken by what was sent since."""
_FROZEN_TURNS = 300
"""Turns in which whatever else a stopped worker was doing comes to an end: it was stopped a moment later."""


class DayRun(Simulation):
    """One day. `store` is an empty one; without it, one in memory."""

    def __init__(self, plan: DayPlan, *, store: Store | None = None) -> None:
        options = dict(plan.options)
        groups = sorted({item.group for item in catalogue().contract("C-100").items.values()})
        routes = [{"groups": groups[::2], "adapter": "micro"}] if options.pop("two_systems") else []
        can_confirm, stale_code = options.pop("can_confirm"), options.pop("stale_code")
        senders = {name: options.pop(name) for name in ("constant_ids", "clocks", "names_patient") if name in options}
        self.plan, self.trace = plan, Trace()
        traced = TracedStore(store or InlineStore(), self.trace, lambda due_at: heapq.heappush(self._due, due_at))
        times = {"poll_interval": POLL, "poll_longest": LONGEST_POLL, "reconcile_interval": RECONCILE, "hold_retry": 900}
        world = World(plan.seed, store=traced, rules={"stale_code": stale_code}, routes=routes, **times, **options)  # type: ignore[arg-type]
        super().__init__(plan.seed, world)
        for lis in world.systems.values():
            lis.can_confirm = can_confirm
        self.laboratory = DayLaboratory(world.systems, **senders)
        world.link.note = self._note_request
        self.counts: Counter[str] = Counter()
        self.writes = 0
        """Requests that may have changed something on the service."""
        self.subjects: dict[str, str] = {}
        """Reference of each order's patient, by its Task."""
        self.laws = DayLaws(self)
        self.store: TracedStore = traced
        self._begin = world.clock.now()
        self._due: list[datetime] = []
        self._needs_look = False
        self._looking: set[str] = set()
        self._agenda: list[tuple[datetime, int, Callable[[], Awaitable[None]]]] = []
        self._numbers = count()
        self._waiting_steps: list[tuple[Step, list[int]]] = []
        self._slots: list[SimulatedAgent] = []
        self._down: dict[str, int] = {}
        self._checked = (-1, -1)

    async def run(self) -> None:
        """Let the day pass, with a check after each step; then let everything come to its end, and check that."""
        with repeatable_process(self.seed):
            for slot in range(2):
                await self._start_worker(slot)
            for step in self.plan.steps:
                self._at(self._begin + timedelta(seconds=step.at), partial(self._begin_step, step))
            self._at(self._begin + timedelta(seconds=OPERATE), self._operate)
            await self._pass_day()
            for step, _ in self._waiting_steps:
                await self._do(step)
            await self._run_to_completion()
            await self.laws.check()

    # --- time

    def _at(self, when: datetime, action: Callable[[], Awaitable[None]]) -> None:
        heapq.heappush(self._agenda, (when, next(self._numbers), action))

    async def _pass_day(self) -> None:
        end = self._begin + timedelta(seconds=DAY)
        while self._agenda or self._due:
            when = min([each[0] for each in self._agenda[:1]] + self._due[:1])
            if when >= end:
                break
            self.world.clock.time = max(self.world.clock.now(), when)
            while self._agenda and self._agenda[0][0] <= when:
                await heapq.heappop(self._agenda)[2]()
            await self._settle()
            await self._check()

    async def _settle(self) -> None:
        """Let everything that goes on come to rest, and what waits for the middle of it happen there."""
        quiet = 0
        for _ in range(_LONGEST_REST):
            self._look_for_work()
            quiet = 0 if self._is_busy() else quiet + 1
            if quiet > (_FROZEN_TURNS if any(agent.injector.frozen for agent in self._slots) else 0):
                self._replace_dead()
                return
            await asyncio.sleep(0)
            await self._do_waiting_steps()
        raise AssertionError("the workers come to no rest")

    async def _do_waiting_steps(self) -> None:
        for each in tuple(self._waiting_steps):
            step, turns = each
            turns[0] -= 1
            if turns[0] <= 0:
                self._waiting_steps.remove(each)
                await self._do(step)

    def _is_busy(self) -> bool:
        return any(agent.running and not agent.injector.frozen for agent in self.agents)

    async def _check(self) -> None:
        state = self.trace.length, self.writes
        if state != self._checked:
            self._checked = state
            self.counts["steps"] += 1
            await self.laws.check_after_step()

    # --- the workers

    async def _start_worker(self, slot: int) -> None:
        number = len(self.agents) + 1
        self.world.rng = Random(f"{self.seed!r} worker {number}")
        agent = self.world.agent(f"worker-{number}")
        self.agents.append(agent)
        self._slots[slot : slot + 1] = [agent]
        world, store, clock = self.world, agent.store, self.world.clock
        again: dict[str, float] = {}
        poll = PollTask(
            poll=agent.poll,
            outages=agent.outages,
            store=store,  # type: ignore[arg-type]
            clock=clock,
            metrics=Metrics(),
            interval=PollInterval(POLL, LONGEST_POLL),
            reschedule=lambda seconds: again.update(poll=seconds),
        )
        collector = ResultCollector(agent.adapters, LisHealth(agent.outages, store, clock).on_result)  # type: ignore[arg-type]
        unconfirmed = UnconfirmedOrders(store, clock, agent.adapters)  # type: ignore[arg-type]
        reconcile = LeasedTask("reconcile", agent.reconcile.run, RECONCILE, store, clock, agent.name)  # type: ignore[arg-type]
        tasks: dict[str, tuple[float, Callable[[], Awaitable[object]]]] = {
            "poll": (POLL, poll.run),
            "reconcile": (RECONCILE, reconcile.run),
            "collect": (COLLECT, collector.run),
            "confirm": (CONFIRM, unconfirmed.run),
        }
        for name, (interval, task) in tasks.items():
            self._repeat(agent, name, interval, task, again, first=world.rng.uniform(0, min(interval, POLL)))
        self._needs_look = True

    def _repeat(
        self,
        agent: SimulatedAgent,
        name: str,
        interval: float,
        task: Callable[[], Awaitable[object]],
        again: dict[str, float],
        *,
        first: float,
    ) -> None:
        async def run() -> None:
            try:
                await task()
            finally:
                self._at(self.world.clock.now() + timedelta(seconds=again.pop(name, interval)), begin)

        async def begin() -> None:
            if agent.injector.frozen:
                self._at(self.world.clock.now() + timedelta(seconds=60), begin)
            elif agent in self._slots and not agent.injector.dead:
                agent.spawn(run())

        self._at(self.world.clock.now() + timedelta(seconds=first), begin)

    def _awake(self) -> list[SimulatedAgent]:
        return [agent for agent in self._slots if not (agent.injector.dead or agent.injector.frozen)]

    def _look_for_work(self) -> None:
        while self._due and self._due[0] <= self.world.clock.now():
            heapq.heappop(self._due)
            self._needs_look = True
        if self._needs_look:
            free = [agent for agent in self._awake() if agent.name not in self._looking]
            for agent in free:
                self._looking.add(agent.name)
                agent.spawn(self._look(agent))
            self._needs_look = not free

    async def _look(self, agent: SimulatedAgent) -> None:
        try:
            while agent in self._slots and await agent.run_jobs(limit=3):
                pass
        finally:
            self._looking.discard(agent.name)

    def _replace_dead(self) -> None:
        for slot, agent in enumerate(self._slots):
            if agent.injector.dead and agent.name in self._down:
                down = self._down.pop(agent.name)
                self.counts["restarts"] += 1
                self._at(self.world.clock.now() + timedelta(seconds=down), partial(self._start_worker, slot))

    # --- the steps

    async def _begin_step(self, step: Step) -> None:
        if step.depth:
            self._waiting_steps.append((step, [step.depth]))
        else:
            await self._do(step)

    async def _do(self, step: Step) -> None:
        self.world.rng = Random(f"{self.seed!r} {step!r}")
        if step.kind in {"preliminary", "result", "swapped", "correction", "shorter", "back", "reject"}:
            self._report(step)
        elif step.kind == "restart":
            await self._restart(step)
        else:
            getattr(self, f"_{step.kind}")(step)

    def _find(self, number: int) -> SimulatedOrder | None:
        return next((order for order in self.orders if order.number == number), None)

    def _order(self, step: Step) -> None:
        template = templates(self._begin.replace(minute=0, second=0))[step.line]
        spoil = self.world.rng.randrange(len(procedure_requests(template.bundle))) if step.more == "spoiled" else None
        self._place(step, self.world.place_order(template, spoil=spoil, relabel=True))

    def _add_on(self, step: Step) -> None:
        """A further order of the patient, from the tubes of an earlier one."""
        if (first := self._find(step.more)) is not None:
            template = templates(self._begin.replace(minute=0, second=0))[step.line]
            patient = self.subjects[first.task].rpartition("/")[2]
            labels = self.world.labels[first.task]
            self._place(step, self.world.place_order(template, relabel=True, patient=patient, labels=labels))

    def _reuse(self, step: Step) -> None:
        """An order of somebody else, with the barcodes that are on the tubes of an earlier one."""
        if (first := self._find(step.more)) is not None:
            known = templates(self._begin.replace(minute=0, second=0))
            template = replace(known[step.line], patient={**known[step.line].patient, **_SOMEBODY_ELSE})
            self._place(step, self.world.place_order(template, relabel=True, labels=self.world.labels[first.task]))

    def _place(self, step: Step, task: str) -> None:
        order = self._add_order(task)
        order.number = step.order
        self.subjects[task] = self.world.subject_of(self.world.get_task(order.lines[0]))
        self.counts["orders"] += 1
        self.counts["shared_tubes"] += step.kind != "order"

    def _clock(self, step: Step) -> None:
        self.laboratory.clock += timedelta(seconds=step.more)
        self.counts["clocks"] += 1

    def _note(self, step: Step) -> None:
        if (order := self._find(step.order)) is not None:
            tasks = (order.task, *order.lines)
            self.world.edit_task(tasks[step.line % len(tasks)])

    def _withdraw(self, step: Step) -> None:
        if (order := self._find(step.order)) is not None:
            self.counts["withdrawals"] += self.world.end_task(order.lines[step.line % len(order.lines)])

    def _withdraw_order(self, step: Step) -> None:
        if (order := self._find(step.order)) is not None:
            ended = [self.world.end_task(task) for task in (*order.lines, order.task)]
            self.counts["withdrawals"] += any(ended)

    def _late_line(self, step: Step) -> None:
        order = self._find(step.order)
        if order is not None and self.world.get_task(order.task)["status"] not in TERMINAL_STATUSES:
            order.lines = (*order.lines, self.world.add_late_line(order.task))
            self.counts["late_lines"] += 1

    def _set_aside(self, step: Step) -> None:
        if (order := self._find(step.order)) is not None:
            tasks = (order.task, *order.lines)
            task = tasks[step.line % len(tasks)]
            if self.world.get_task(task)["status"] == "requested":
                self.world.update_task(task, status=step.more)
                order.set_aside.add(task)

    def _request_again(self, step: Step | None = None) -> None:
        if step is None:
            super()._request_again()
        elif (order := self._find(step.order)) is not None:
            self._request_order_again(order)

    def _report(self, step: Step) -> None:
        order = self._find(step.order)
        if order is None or step.line >= len(order.lines):
            return
        key, now = self.line_key(order.lines[step.line]), self.world.clock.now()
        if not self.laboratory.report(key, step.kind, step.more, now, self.world.rng):
            self._at(now + timedelta(seconds=_AGAIN), partial(self._begin_step, step._replace(depth=0)))
            return
        self.counts["corrections" if step.kind in {"correction", "shorter", "back"} else "results"] += 1
        if self.world.rng.random() < 0.5:
            for agent in self._awake()[-1 - self.world.rng.randrange(2) :][:1]:
                agent.spawn(self._collect(agent))

    async def _collect(self, agent: SimulatedAgent) -> None:
        for _, lis in agent.adapters.running():
            await lis.collect()

    def _service_down(self, step: Step) -> None:
        self.world.link.outage = step.more
        self.counts["outages"] += 1

    def _service_up(self, _: Step) -> None:
        self.world.link.outage = None

    def _system(self, step: Step) -> SimulatedLis:
        return tuple(self.world.systems.values())[step.line % len(self.world.systems)]

    def _lis_down(self, step: Step) -> None:
        self._system(step).is_down = True
        self.counts["outages"] += 1

    def _lis_up(self, _: Step | None = None) -> None:
        for lis in self.world.systems.values():
            lis.is_down = False

    def _lis_rejects_down(self, step: Step) -> None:
        self._system(step).rejects = True
        self.counts["refusing_systems"] += 1

    def _lis_rejects_up(self, _: Step | None = None) -> None:
        for lis in self.world.systems.values():
            lis.rejects = False

    def _catalogue_down(self, _: Step) -> None:
        self.world.catalogues.available = False

    def _catalogue_up(self, _: Step | None = None) -> None:
        self.world.catalogues.available = True

    def _crash(self, step: Step) -> None:
        injector = self._slots[step.order].injector
        if not injector.frozen and not injector.dead:
            injector.crash_after = step.line
            self._down[self._slots[step.order].name] = step.more

    async def _restart(self, step: Step) -> None:
        agent = self._slots[step.order]
        if not agent.injector.frozen and not agent.injector.dead:
            await agent.wait_idle()
            if not agent.injector.dead:
                self.counts["restarts"] += 1
                await self._start_worker(step.order)

    def _freeze(self, step: Step) -> None:
        agent = self._slots[step.order]
        if agent.injector.dead or agent.injector.frozen:
            return
        agent.injector.freeze_after = step.line

        async def thaw() -> None:
            if agent.injector.frozen:
                self.counts["stops"] += 1
                agent.injector.thaw()
            elif agent.injector.freeze_after is not None:  # nothing was sent yet
                self._at(self.world.clock.now() + timedelta(seconds=step.more), thaw)

        self._at(self.world.clock.now() + timedelta(seconds=step.more), thaw)

    def _fault(self, step: Step) -> None:
        self._slots[step.order].injector.planned.append(PlannedFault(step.more, step.line))

    def _note_request(self, text: str) -> None:
        self.trace.note(text)
        self.writes += not text.startswith("GET")

    # --- people, and the end

    async def _operate(self) -> None:
        await self._settle()
        await self._decide_as_operator()
        await self._decide_held(patient=True)
        await self._decide_results()
        self._at(self.world.clock.now() + timedelta(seconds=OPERATE), self._operate)

    async def _decide_results(self) -> None:
        """A person releases what is held, once its reason was looked into, and says whose it is where a tube means several."""
        store, matcher = self.world.store, self.agents[-1].matcher
        who: dict[str, Any] = {"by": "person", "note": "I asked", "now": self.world.clock.now()}
        for report in await result_actions.waiting_results(store):
            with contextlib.suppress(InvalidTransitionError):
                if report.state is ReportState.UNMATCHED:
                    if (measured := self.laboratory.find_measured(report)) is not None:
                        order, line = measured
                        await result_actions.match_result(store, matcher, report.key, order, lines=(line,), **who)
                elif report.hold_reason in _ABOUT_VERSIONS and await self._is_outdated(report):
                    await result_actions.dismiss_result(store, report.key, **who)
                elif report.hold_reason is not HoldReason.WAITS_FOR_VERSION:
                    await result_actions.release_result(store, matcher, report.key, **who)

    async def _is_outdated(self, report: ReportRecord) -> bool:
        """What a person finds in the laboratory's own system: a later version of a report was sent."""
        of = (OrderKey(report.order or ""), report.source, report.report_id or "")
        return self.laboratory.is_outdated(report, await self.world.store.transact(lambda uow: uow.reports.versions(*of)))

    async def _decide_held(self, *, patient: bool) -> None:
        """A person who knows that a barcode was given out twice releases what is held for it."""
        for order in await self.known_orders():
            record, _ = await self.world.stored_order(order.task)
            if order.number >= FIRST_SHARED and record.state is OrderState.HELD and record.received is not None:
                holds = (await reassess(self.world.store, self.agents[-1].assessor, record.key)).assessment.holds
                if {each.rule for each in holds} == {"tube.label-in-use"}:
                    now = self.world.clock.now()
                    await order_actions.release_order(self.world.store, record.key, holds, "compared", by="person", now=now)
        await super()._decide_held(patient=patient)

    async def _end_noise(self) -> None:
        self.world.link.outage = None
        self._lis_up()
        self._lis_rejects_up()
        self._catalogue_up()
        for agent in self.agents:
            agent.injector.crash_after = agent.injector.freeze_after = None
            agent.injector.planned.clear()
            agent.injector.thaw()
        await super()._end_noise()

    async def _report_open_lines(self, agent: SimulatedAgent) -> None:
        now = self.world.clock.now()
        for key in sorted(self.laboratory.unreported_lines()):
            self.laboratory.report(key, "result", "order", now, Random(f"{self.seed!r} {key}"))
        await self._collect(agent)
        await self.world.drain(agent, until=timedelta(seconds=10))
        await self._decide_results()

    async def _all_closed(self) -> bool:
        waiting = await result_actions.waiting_results(self.world.store)
        return not waiting and await super()._all_closed()


def law_of(error: BaseException) -> str:
    """Which law an error says is broken: the same of two runs that fail alike."""
    trace = error.__traceback__
    where = ""
    while trace is not None:
        if "/tests/" in trace.tb_frame.f_code.co_filename:
            where = trace.tb_frame.f_code.co_name
        trace = trace.tb_next
    return f"{type(error).__name__} in {where}: {str(error).partition(':')[0].splitlines()[:1]}"


async def run_day(plan: DayPlan, **options: object) -> DayRun:
    """Run a day. One that fails is made small first: the note of the error has the steps that still fail, as Python."""
    run = DayRun(plan, **options)  # type: ignore[arg-type]
    try:
        await run.run()
    except Exception as error:
        error.add_note(f"day {plan.seed!r} breaks a law; the same with fewer steps:\n{await shrink_day(plan, law_of(error))}")
        raise
    return run


async def shrink_day(plan: DayPlan, law: str) -> DayPlan:
    """The plan with fewer steps that still breaks the law."""

    async def breaks_it(steps: Sequence[Step]) -> bool:
        try:
            await DayRun(replace(plan, steps=tuple(steps))).run()
        except Exception as error:  # noqa: BLE001 - of whatever kind the first one was
            return law_of(error) == law
        return False

    return replace(plan, steps=await shrink(plan.steps, breaks_it))


async def replay(seed: object, steps: Sequence[tuple[object, ...]]) -> DayRun:
    """Run the steps that a failing day was made small to, with the settings of its seed."""
    run = DayRun(replace(plan_day(seed), steps=tuple(Step(*each) for each in steps)))  # type: ignore[arg-type]
    await run.run()
    return run
