"""One run of the simulation: much happens to a few orders at once, then the system is left alone, and the laws must hold."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lab_agent.lis.lab_order import LabOrder
from lab_agent.orders import job_actions, order_actions
from lab_agent.queue.job_records import JobKind
from lab_agent.queue.jobs import adapter_of
from lab_agent.shared.ids import LineKey, OrderKey, line_key
from lab_agent.shared.state_machines import JobState, LineState, OrderState
from tests.harness.orders import BASE, UNKNOWN_ITEM, catalogue, procedure_requests, templates
from tests.harness.world import TERMINAL_STATUSES, SimulatedAgent, World

_TASK_JOBS = (JobKind.UPDATE_LINE_TASK, JobKind.UPDATE_ORDER_TASK)
_LIS_JOBS = (JobKind.SUBMIT_ORDER, JobKind.CANCEL_AT_LIS)
STEPS = 45
QUIET_TURNS = 2
"""After so many the look after the end is over, too: it may find what was put back just before it."""


@dataclass
class SimulatedOrder:
    """An order of the run: its Task, its line Tasks, and which of them were invalid from the start."""

    task: str
    lines: tuple[str, ...]
    invalid_lines: frozenset[str]
    repeats: str | None = None
    """The order whose ProcedureRequests it is about, too."""
    set_aside: set[str] = field(default_factory=set)
    """Tasks that somebody else had put into another status."""
    revived: set[str] = field(default_factory=set)
    """Tasks that had ended and were requested again."""
    number: int = 0
    """What the plan of a day calls it."""


class Simulation:
    """A world with orders in it, and what people do until all of them have ended. Subclasses let much happen before."""

    def __init__(self, seed: object, world: World) -> None:
        self.seed = seed
        self.world = world
        self.orders: list[SimulatedOrder] = []
        self.agents: list[SimulatedAgent] = []

    def _add_order(self, task: str, repeats: str | None = None) -> SimulatedOrder:
        lines = self.world.line_tasks(task)
        invalid = frozenset(str(line["id"]) for line in lines if self.world.item_of(line) == UNKNOWN_ITEM)
        order = SimulatedOrder(task, tuple(str(line["id"]) for line in lines), invalid, repeats)
        self.orders.append(order)
        return order

    def _request_again(self) -> None:
        """What somebody had set aside is requested again."""
        for order in self.orders:
            self._request_order_again(order)

    def _request_order_again(self, order: SimulatedOrder) -> None:
        for task in sorted(order.set_aside):
            if self.world.get_task(task)["status"] not in TERMINAL_STATUSES:
                self.world.force_task(task, status="requested")
        order.set_aside.clear()

    async def _end_noise(self) -> None:
        """Let nothing go wrong any more, and what is running end."""
        for agent in self.agents:
            agent.injector.crashes = agent.injector.faults = 0.0
            await agent.wait_idle()

    # --- the system is left alone

    async def _run_to_completion(self) -> None:
        await self._end_noise()
        self._request_again()
        last, quiet = self.world.agent("last"), 0
        for turn in range(60):
            await last.poll.run()
            await self.world.drain(last, until=timedelta(seconds=10))
            await last.reconcile.run()
            await self._decide_as_operator()
            await self._decide_held(patient=turn < 12)
            await self._report_open_lines(last)
            await self.world.drain(last, until=timedelta(seconds=10))
            quiet = quiet + 1 if await self._all_closed() else 0
            self.world.clock.advance(200)
            if quiet > QUIET_TURNS:
                if not (checks := await self._next_checks()):
                    return
                self.world.clock.time, quiet = max(self.world.clock.now(), *checks), 0

    async def _next_checks(self) -> list[datetime]:
        """When ended orders are looked at again."""
        return [at for each in await self.known_orders() if (at := (await self.world.stored_order(each.task))[0].recheck_at)]

    async def _decide_as_operator(self) -> None:
        """Where the program cannot tell whether the laboratory has an order, a person asks there."""
        for order in self.orders:
            for job in await self.world.jobs(order.task):
                if job.state is JobState.NEEDS_REVIEW and job.kind is not JobKind.SUBMIT_ORDER:
                    await job_actions.retry_job(self.world.store, job.id, by="person", now=self.world.clock.now())
                elif job.state is JobState.NEEDS_REVIEW:
                    lis, now = self.world.systems[adapter_of(job)], self.world.clock.now()
                    assert not lis.can_confirm, "the laboratory system knows what it received; no person is needed"
                    if lis.has_received(OrderKey(job.target)):
                        await job_actions.mark_job_done(self.world.store, job.id, by="person", note="it is there", now=now)
                    else:
                        await job_actions.retry_job(self.world.store, job.id, by="person", now=now)

    async def _decide_held(self, *, patient: bool) -> None:
        """A person refuses what is held for good, and repeats what could not be done while somebody else had a Task."""
        now, store = self.world.clock.now(), self.world.store
        for order in await self.known_orders():
            record, lines = await self.world.stored_order(order.task)
            for line in lines:
                if line.state is LineState.HELD and record.state is not OrderState.HELD:
                    await order_actions.reject_line(store, line.key, "order it anew", by="person", now=now)
            if record.state is OrderState.HELD and record.received is not None and not patient:
                await order_actions.reject_order(store, BASE, record.key, "order it anew", by="person", now=now)
            for job in await self.world.jobs(order.task):
                if job.state is JobState.DEAD_LETTER:
                    await job_actions.retry_job(store, job.id, by="person", now=now)

    async def _report_open_lines(self, agent: SimulatedAgent) -> None:
        for order in await self.known_orders():
            _, lines = await self.world.stored_order(order.task)
            keys = {line.key for line in lines if line.state is LineState.ACCEPTED}
            for _, submitted in self.submitted():
                for line in submitted.lines:
                    if line.key in keys:
                        await self.world.end_line(agent.store, line.key)

    async def _all_closed(self) -> bool:
        orders = await self.known_orders()
        closed = [(await self.world.stored_order(order.task))[0].state is OrderState.CLOSED for order in orders]
        return all(closed) and not any([await self.world.jobs(order.task) for order in orders])

    def submitted(self) -> list[tuple[str, LabOrder]]:
        return [(name, order) for name, lis in self.world.systems.items() for order in lis.submitted]

    def line_key(self, task: str) -> LineKey:
        return line_key(self.world.settings.exchange.base_url, task)  # type: ignore[arg-type]

    def repeated(self, order: SimulatedOrder) -> bool:
        """Whether there is a second order about the same ProcedureRequests."""
        return any(other.repeats == order.task for other in self.orders)

    async def known_orders(self) -> list[SimulatedOrder]:
        """The orders that any worker saw: one that the partner ended at once is none of ours."""
        tasks = [order.task for order in self.orders]
        known = await self.world.store.transact(lambda uow: uow.orders.existing(tasks))
        return [order for order in self.orders if order.task in known]


class SimulationRun(Simulation):
    """A run, repeated exactly by its seed."""

    def __init__(self, seed: object) -> None:
        chance = World(("settings", seed)).rng
        options = {
            "acknowledge_status": chance.choice([None, None, "accepted"]),
            "on_line_error": chance.choice(["cancel_line", "cancel_line", "cancel_order"]),
        }
        groups = sorted({item.group for item in catalogue().contract("C-100").items.values()})
        shared = [{"groups": chance.sample(groups, len(groups) // 2), "adapter": "micro"}]
        routes = shared if chance.random() < 0.5 else []
        super().__init__(seed, World(seed, rules={"stale_code": chance.choice([409, 412])}, routes=routes, **options))
        self.crashes, self.faults = chance.choice([0.0, 0.004, 0.02]), chance.choice([0.0, 0.05, 0.2])
        for lis in self.world.systems.values():
            lis.can_confirm = chance.random() < 0.75
        self.unruly = chance.random() < 0.5
        """Whether others set statuses, take back ends, and order twice."""
        self.rng = self.world.rng

    async def run(self) -> None:
        """Let it all happen; then check."""
        self._place_order()
        for _ in range(STEPS):
            self._step()
            for _ in range(self.rng.randrange(6)):
                await asyncio.sleep(0)
            await Invariants(self).check_at_any_time()
        await self._run_to_completion()
        await Invariants(self).check()

    # --- the noisy part

    def _step(self) -> None:
        actions = {
            self._place_order: 1 if len(self.orders) < 3 else 0,
            self._run_jobs: 10,
            self._poll: 3,
            self._reconcile: 3,
            self._edit_task: 4,
            self._end_tasks: 1,
            self._set_aside: 2 if self.unruly else 0,
            self._request_again: 2 if self.unruly else 0,
            self._revive: 1 if self.unruly else 0,
            self._order_again: 1 if self.unruly and len(self.orders) < 4 else 0,
            self._report_line: 3,
            self._advance_clock: 5,
        }
        self.rng.choices(list(actions), list(actions.values()))[0]()

    def _place_order(self) -> None:
        template = self.rng.choice(templates(self.world.clock.now().replace(minute=0, second=0)))
        number = len(procedure_requests(template.bundle))
        spoil = self.rng.randrange(number) if self.rng.random() < 0.3 else None
        self._add_order(self.world.place_order(template, spoil=spoil, relabel=True))

    def _pick_agent(self) -> SimulatedAgent:
        """One of two workers; a dead one is replaced by a new process."""
        alive = [agent for agent in self.agents if not agent.injector.dead]
        while len(alive) < 2:
            name = f"worker-{len(self.agents) + 1}"
            alive.append(self.world.agent(name, crashes=self.crashes, faults=self.faults))
            self.agents.append(alive[-1])
        return self.rng.choice(alive)

    def _run_jobs(self) -> None:
        agent = self._pick_agent()
        kinds = self.rng.choice([(), (), (JobKind.FETCH_ORDER,), _LIS_JOBS, _TASK_JOBS])
        agent.spawn(agent.run_jobs(*kinds))

    def _poll(self) -> None:
        agent = self._pick_agent()
        agent.spawn(agent.poll.run())

    def _reconcile(self) -> None:
        agent = self._pick_agent()
        agent.spawn(agent.reconcile.run())

    def _edit_task(self) -> None:
        order = self.rng.choice(self.orders)
        self.world.edit_task(self.rng.choice([order.task, *order.lines]))

    def _end_tasks(self) -> None:
        order = self.rng.choice(self.orders)
        if self.rng.random() < 0.5:
            self.world.end_task(self.rng.choice(order.lines))
        else:
            for task in (*order.lines, order.task):
                self.world.end_task(task)

    def _set_aside(self) -> None:
        """Somebody else puts a requested Task into a status that is not ours."""
        order = self.rng.choice(self.orders)
        task = self.rng.choice([order.task, *order.lines])
        if self.world.get_task(task)["status"] == "requested":
            self.world.update_task(task, status=self.rng.choice(["on-hold", "draft", "in-progress", "received"]))
            order.set_aside.add(task)

    def _revive(self) -> None:
        """An order that ended is offered again as a whole, or one of its lines is put back."""
        order = self.rng.choice(self.orders)
        ended = [task for task in order.lines if self.world.get_task(task)["status"] in TERMINAL_STATUSES]
        if self.world.get_task(order.task)["status"] in TERMINAL_STATUSES:
            ended.append(order.task)
        elif ended:
            ended = [self.rng.choice(ended)]
        for task in ended:
            self.world.force_task(task, status="requested")
            order.revived.add(task)

    def _order_again(self) -> None:
        """The partner makes a second order about the same ProcedureRequests."""
        order = self.rng.choice(self.orders)
        self._add_order(self.world.order_again(order.task), repeats=order.task)

    def _report_line(self) -> None:
        """The laboratory reports, or rejects, a line that it has."""
        order = self.rng.choice(self.orders)
        keys = set(map(self.line_key, order.lines))
        if there := [line.key for _, each in self.submitted() for line in each.lines if line.key in keys]:
            key = self.rng.choice(sorted(there))
            rejection = "haemolysed — please collect again" if self.rng.random() < 0.3 else None
            agent = self._pick_agent()
            agent.spawn(self.world.end_line(agent.store, key, rejection))

    def _advance_clock(self) -> None:
        """Time passes; so much that a lease expires only if no living worker is in the middle of something."""
        busy = any(agent.running and not agent.injector.dead for agent in self.agents)
        self.world.clock.advance(self.rng.choice([1, 6]) if busy else self.rng.choice([2, 6, 40, 400]))


@dataclass
class Invariants:
    run: Simulation

    async def check(self) -> None:
        seen = await self.run.known_orders()
        assert all(order in seen or order.task in self.run.world.ended_by_partner for order in self.run.orders)
        await self.check_at_any_time()
        for order in seen:
            await self._check_nothing_open(order)
            if order.revived or order.repeats or self.run.repeated(order):
                self._check_all_ended(order)
            else:
                await self._check_submitted_once(order)
                await self._check_task_statuses(order)
                await self._check_cancellations(order)
            self._check_partner_edits(order)

    async def check_at_any_time(self) -> None:
        """What holds after every step: no order goes to the laboratory twice, no request is done twice, no line changes hands."""
        submitted = self.run.submitted()
        assert max(Counter((name, order.key) for name, order in submitted).values(), default=0) <= 1, "handed over twice"
        lines_there = Counter(line.key for _, order in submitted for line in order.lines)
        assert max(lines_there.values(), default=0) <= 1, "a line went to two laboratory systems"
        for order in await self.run.known_orders():
            record, lines = await self.run.world.stored_order(order.task)
            assert {line.task_id for line in lines} <= set(order.lines), "a line of another order was taken"
            assert record.state is not OrderState.HELD or record.reason, "held without a reason"
        await self._check_requests_done_once()

    async def _check_requests_done_once(self) -> None:
        """Lines that the laboratory works on, or has done, are about different ProcedureRequests."""
        at_work = {LineState.ACCEPTED, LineState.RESULTED, LineState.COMPLETED}
        requests: Counter[object] = Counter()
        for order in await self.run.known_orders():
            _, lines = await self.run.world.stored_order(order.task)
            requests.update(line.procedure_request_id for line in lines if line.state in at_work)
        assert max(requests.values(), default=0) <= 1, "one ProcedureRequest is done in two orders"

    def _check_all_ended(self, order: SimulatedOrder) -> None:
        """Nothing that was taken up again stays requested, but for lines of an order that ended before that."""
        world = self.run.world
        assert world.get_task(order.task)["status"] in TERMINAL_STATUSES
        for task in order.lines:
            ended = world.get_task(task)["status"] in TERMINAL_STATUSES
            assert ended or task in order.revived or order.task in world.ended_by_partner

    async def _check_nothing_open(self, order: SimulatedOrder) -> None:
        record, lines = await self.run.world.stored_order(order.task)
        waiting = [(e.kind.value, e.state.value, e.reason) for e in await self.run.world.jobs(order.task)]
        assert not waiting, waiting
        assert record.state is OrderState.CLOSED, (record.state, record.reason, [line.state for line in lines])

    async def _check_submitted_once(self, order: SimulatedOrder) -> None:
        key = self.run.world.order_key_of(order.task)
        names = [name for name, each in self.run.submitted() if each.key == key]
        assert all(each.lines for _, each in self.run.submitted()), "an order of no lines was handed over"
        _, lines = await self.run.world.stored_order(order.task)
        for line in lines:
            assert line.adapter in names or line.state not in {LineState.COMPLETED, LineState.CANCELLED}

    async def _check_task_statuses(self, order: SimulatedOrder) -> None:
        world = self.run.world
        _record, lines = await world.stored_order(order.task)
        by_task = {str(line.task_id): line for line in lines}
        for task_id in order.lines:
            task = world.get_task(task_id)
            self._check_terminal_status(task_id)
            if task_id in world.ended_by_partner:
                assert task["status"] == world.ended_by_partner[task_id]
                continue
            if not lines:  # the partner ended the order before it was assessed: its lines are the partner's
                assert order.task in world.ended_by_partner
                continue
            line = by_task.get(task_id)
            if line is None:  # it came late to an order that the partner ended
                assert order.task in world.ended_by_partner, "a line that nobody has seen"
                continue
            if line.state is LineState.WITHDRAWN:
                assert order.task in world.ended_by_partner, "withdrawn, and nobody had ended it"
                continue
            self._check_line_task(task, line.state, line.outputs, invalid=task_id in order.invalid_lines)
        self._check_order_task(order, any(line.state is LineState.COMPLETED for line in lines))

    def _check_line_task(self, task: dict[str, object], state: LineState, outputs: tuple[str, ...], *, invalid: bool) -> None:
        expected = {LineState.COMPLETED: "completed", LineState.CANCELLED: "cancelled", LineState.REJECTED: "cancelled"}
        assert task["status"] == expected[state], (task["status"], state)
        given = [one["valueString"] for one in task.get("output", ())]  # type: ignore[attr-defined]
        assert given == list(outputs), "each reason once"
        assert bool(outputs) == (state is not LineState.COMPLETED)
        if invalid:
            assert state is LineState.REJECTED

    def _check_order_task(self, order: SimulatedOrder, completed: bool) -> None:
        self._check_terminal_status(order.task)
        status = self.run.world.get_task(order.task)["status"]
        theirs = self.run.world.ended_by_partner.get(order.task)
        assert status == (theirs or ("completed" if completed else "cancelled"))

    def _check_terminal_status(self, task_id: str) -> None:
        """Never out of a terminal status."""
        history = self.run.world.status_history(task_id)
        first = next((number for number, status in enumerate(history) if status in TERMINAL_STATUSES), len(history))
        assert len(set(history[first:])) <= 1, history

    async def _check_cancellations(self, order: SimulatedOrder) -> None:
        _, lines = await self.run.world.stored_order(order.task)
        systems = self.run.world.systems
        there = {line.key for _, each in self.run.submitted() for line in each.lines}
        for line in lines:
            count = systems[line.adapter].cancel_count(line.key) if line.adapter else 0
            assert sum(lis.cancel_count(line.key) for lis in systems.values()) == count, "another system's line was cancelled"
            if line.state is LineState.WITHDRAWN and line.key in there:
                assert count >= 1, "the laboratory works on a withdrawn line that was not cancelled"
            if line.state is not LineState.WITHDRAWN:
                assert count == 0, "a line was cancelled that nobody had withdrawn"

    def _check_partner_edits(self, order: SimulatedOrder) -> None:
        for task_id in (order.task, *order.lines):
            notes = [note["text"] for note in self.run.world.get_task(task_id).get("note", ())]
            assert notes == self.run.world.edits.get(task_id, []), "a change by the partner was lost"


async def simulate(seed: object) -> None:
    """Run once; a broken law names the seed that repeats the run."""
    run = SimulationRun(seed)
    try:
        await run.run()
    except Exception as exc:
        exc.add_note(f"repeat the run with seed {seed!r}")
        raise
