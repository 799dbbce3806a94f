"""One run of the simulation: everything happens to a few orders at once, then it grows quiet, and the laws must hold."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta

from lab_agent.domain.ids import LineKey, OrderKey, line_key
from lab_agent.domain.journal import EffectKind
from lab_agent.domain.lifecycle import ENDED_LINES, EffectState, LineState, OrderState
from lab_agent.steps import desk
from tests.simulation.orders import lines_of, templates
from tests.simulation.seams import Crash
from tests.simulation.world import ENDS, Agent, World

_TASKS = (EffectKind.LINE_TASK, EffectKind.ORDER_TASK)
_LIS = (EffectKind.HANDOVER, EffectKind.LIS_CANCEL)
STEPS = 45


@dataclass
class Placed:
    """An order of the run: its Task, its line Tasks, and which of them were spoilt from the start."""

    task: str
    lines: tuple[str, ...]
    spoilt: frozenset[str]
    refused_by_lis: dict[str, str] = field(default_factory=dict)


class Play:
    """A run, told again exactly by its seed."""

    def __init__(self, seed: object) -> None:
        self.seed = seed
        chance = World(("settings", seed)).rng
        options = {
            "acknowledge_status": chance.choice([None, None, "accepted"]),
            "on_line_error": chance.choice(["cancel_line", "cancel_line", "cancel_order"]),
        }
        self.world = World(seed, rules={"stale_code": chance.choice([409, 412])}, **options)
        self.crashes, self.faults = chance.choice([0.0, 0.004, 0.02]), chance.choice([0.0, 0.05, 0.2])
        self.world.lis.knows = chance.random() < 0.75
        self.rng = self.world.rng
        self.orders: list[Placed] = []
        self.agents: list[Agent] = []
        self.hired = 0

    async def run(self) -> None:
        """Let it all happen; then judge."""
        self._place()
        for _ in range(STEPS):
            await self._step()
            for _ in range(self.rng.randrange(6)):
                await asyncio.sleep(0)
        await self._quieten()
        await Laws(self).hold()

    # --- the noisy part

    async def _step(self) -> None:
        deeds = {
            self._place: 1 if len(self.orders) < 3 else 0,
            self._work: 10,
            self._poll: 3,
            self._reconcile: 3,
            self._edit: 4,
            self._end: 1,
            self._report: 3,
            self._pass_time: 5,
        }
        deed = self.rng.choices(list(deeds), list(deeds.values()))[0]
        deed()

    def _place(self) -> None:
        template = self.rng.choice(templates(self.world.clock.now().replace(minute=0, second=0)))
        number = len(lines_of(template.bundle))
        spoil = self.rng.randrange(number) if self.rng.random() < 0.3 else None
        task = self.world.order(template, spoil=spoil, relabel=True)
        lines = self.world.line_tasks(task)
        spoilt = frozenset(str(line["id"]) for line in lines if self._orders_unknown(line))
        self.orders.append(Placed(task, tuple(str(line["id"]) for line in lines), spoilt))

    def _orders_unknown(self, line: dict[str, object]) -> bool:
        return self.world.item_of(line) == "999.999"

    def _agent(self) -> Agent:
        """One of two workers; a dead one is followed by a new process."""
        alive = [agent for agent in self.agents if not agent.life.dead]
        while len(alive) < 2:
            self.hired += 1
            alive.append(self.world.agent(f"worker-{self.hired}", crashes=self.crashes, faults=self.faults))
            self.agents.append(alive[-1])
        return self.rng.choice(alive)

    def _work(self) -> None:
        agent = self._agent()
        kinds = self.rng.choice([(), (), (EffectKind.LOOK,), _LIS, _TASKS])
        agent.spawn(agent.work(*kinds))

    def _poll(self) -> None:
        agent = self._agent()
        agent.spawn(agent.poll.run())

    def _reconcile(self) -> None:
        agent = self._agent()
        agent.spawn(agent.reconcile.run())

    def _edit(self) -> None:
        order = self.rng.choice(self.orders)
        self.world.edit(self.rng.choice([order.task, *order.lines]))

    def _end(self) -> None:
        order = self.rng.choice(self.orders)
        if self.rng.random() < 0.5:
            self.world.end(self.rng.choice(order.lines))
        else:
            for task in (*order.lines, order.task):
                self.world.end(task)

    def _report(self) -> None:
        """The laboratory reports, or refuses, a line that it has."""
        order = self.rng.choice(self.orders)
        line = self._in_lab(order)
        if line is not None:
            refusal = "haemolysed — please collect again" if self.rng.random() < 0.3 else None
            agent = self._agent()
            agent.spawn(self._deliver(agent, order, *line, refusal))

    async def _deliver(self, agent: Agent, order: Placed, task: str, key: LineKey, refusal: str | None) -> None:
        await self.world.report(agent.store, key, refusal)

    def _in_lab(self, order: Placed) -> tuple[str, LineKey] | None:
        keys = {line_key(self.world.settings.exchange.base_url, task): task for task in order.lines}  # type: ignore[arg-type]
        there = [line.key for each in self.world.lis.submitted for line in each.lines if line.key in keys]
        if not there:
            return None
        key = self.rng.choice(sorted(there))
        return keys[key], key

    def _pass_time(self) -> None:
        """Time passes; so much that a lease lapses only where nobody living is in the middle of something."""
        busy = any(agent.running and not agent.life.dead for agent in self.agents)
        self.world.clock.advance(self.rng.choice([1, 6]) if busy else self.rng.choice([2, 6, 40, 400]))

    # --- and then it grows quiet

    async def _quieten(self) -> None:
        for agent in self.agents:
            agent.life.crashes = agent.life.faults = 0.0
            await agent.ended()
        last = self.world.agent("last")
        for _ in range(60):
            await last.poll.run()
            await self.world.drain(last, until=timedelta(seconds=10))
            await last.reconcile.run()
            await self._person()
            await self._last_reports(last)
            await self.world.drain(last, until=timedelta(seconds=10))
            if await self._closed():
                return
            self.world.clock.advance(200)

    async def _person(self) -> None:
        """Where nobody can tell whether the laboratory has an order, a person asks there."""
        for order in self.orders:
            for effect in await self.world.effects(order.task):
                if effect.state is EffectState.REVIEW:
                    assert not self.world.lis.knows, "the laboratory system knows what it received; nobody need be asked"
                    now = self.world.clock.now()
                    if self.world.lis.received(OrderKey(effect.subject)):
                        await desk.mark_effect_done(self.world.store, effect.id, by="person", note="it is there", now=now)
                    else:
                        await desk.retry_effect(self.world.store, effect.id, by="person", now=now)

    async def _last_reports(self, agent: Agent) -> None:
        for order in await self.seen():
            _, lines = await self.world.journal(order.task)
            keys = {line.key for line in lines if line.state not in ENDED_LINES}
            for submitted in self.world.lis.submitted:
                for line in submitted.lines:
                    if line.key in keys:
                        await self.world.report(agent.store, line.key)

    async def _closed(self) -> bool:
        return all([(await self.world.journal(order.task))[0].state is OrderState.CLOSED for order in await self.seen()])

    async def seen(self) -> list[Placed]:
        """The orders that any worker saw: one that the partner ended at once is none of ours."""
        tasks = [order.task for order in self.orders]
        known = await self.world.store.run(lambda uow: uow.orders.known(tasks))
        return [order for order in self.orders if order.task in known]


@dataclass
class Laws:
    """What must be so when all is quiet."""

    play: Play

    async def hold(self) -> None:
        """Check every law for every order."""
        seen = await self.play.seen()
        assert all(order in seen or order.task in self.play.world.ended_by_partner for order in self.play.orders)
        for order in seen:
            await self._nothing_waits(order)
            await self._once_in_the_lis(order)
            await self._tasks_at_their_ends(order)
            await self._told_of_withdrawals(order)
            self._nothing_lost(order)

    async def _nothing_waits(self, order: Placed) -> None:
        record, lines = await self.play.world.journal(order.task)
        waiting = [(e.kind.value, e.state.value, e.reason) for e in await self.play.world.effects(order.task)]
        assert not waiting, waiting
        assert record.state is OrderState.CLOSED, (record.state, record.reason, [line.state for line in lines])

    async def _once_in_the_lis(self, order: Placed) -> None:
        key = self.play.world.key(order.task)
        times = Counter(each.key for each in self.play.world.lis.submitted)[key]
        assert times <= 1, "handed over twice"
        assert all(each.lines for each in self.play.world.lis.submitted), "an order of no lines was handed over"
        _, lines = await self.play.world.journal(order.task)
        if any(line.state in {LineState.COMPLETED, LineState.CANCELLED} for line in lines):
            assert times == 1

    async def _tasks_at_their_ends(self, order: Placed) -> None:
        world = self.play.world
        _record, lines = await world.journal(order.task)
        by_task = {str(line.task_id): line for line in lines}
        for task_id in order.lines:
            task = world.task(task_id)
            self._ended_once(task_id)
            if task_id in world.ended_by_partner:
                assert task["status"] == world.ended_by_partner[task_id]
                continue
            if not lines:  # the partner ended the order before it was judged: its lines are the partner's
                assert order.task in world.ended_by_partner
                continue
            line = by_task[task_id]
            if line.state is LineState.WITHDRAWN:
                assert order.task in world.ended_by_partner, "withdrawn, and nobody had ended it"
                continue
            self._as_it_ended(task, line.state, line.outputs, spoilt=task_id in order.spoilt)
        self._order_task(order, any(line.state is LineState.COMPLETED for line in lines))

    def _as_it_ended(self, task: dict[str, object], state: LineState, outputs: tuple[str, ...], *, spoilt: bool) -> None:
        expected = {LineState.COMPLETED: "completed", LineState.CANCELLED: "cancelled", LineState.REFUSED: "cancelled"}
        assert task["status"] == expected[state], (task["status"], state)
        given = [one["valueString"] for one in task.get("output", ())]  # type: ignore[attr-defined]
        assert given == list(outputs), "each reason once"
        assert bool(outputs) == (state is not LineState.COMPLETED)
        if spoilt:
            assert state is LineState.REFUSED

    def _order_task(self, order: Placed, completed: bool) -> None:
        self._ended_once(order.task)
        status = self.play.world.task(order.task)["status"]
        theirs = self.play.world.ended_by_partner.get(order.task)
        assert status == (theirs or ("completed" if completed else "cancelled"))

    def _ended_once(self, task_id: str) -> None:
        """Never out of a terminal status."""
        history = self.play.world.history(task_id)
        first = next((number for number, status in enumerate(history) if status in ENDS), len(history))
        assert len(set(history[first:])) <= 1, history

    async def _told_of_withdrawals(self, order: Placed) -> None:
        _, lines = await self.play.world.journal(order.task)
        lis = self.play.world.lis
        there = {line.key for each in lis.submitted for line in each.lines}
        for line in lines:
            told = lis.told_of(line.key)
            if line.state is LineState.WITHDRAWN and line.key in there:
                assert told >= 1, "the laboratory works on a withdrawn line, and was not told"
            if line.state is not LineState.WITHDRAWN:
                assert told == 0, "told of a withdrawal that was none"

    def _nothing_lost(self, order: Placed) -> None:
        for task_id in (order.task, *order.lines):
            notes = [note["text"] for note in self.play.world.task(task_id).get("note", ())]
            assert notes == self.play.world.edits.get(task_id, []), "a change of the partner's was lost"


async def play(seed: object) -> None:
    """Run once; a broken law names the seed that tells the run again."""
    run = Play(seed)
    try:
        await run.run()
    except (AssertionError, Exception) as exc:
        exc.add_note(f"the run tells itself again with seed {seed!r}")
        raise


__all__ = ["Crash", "Play", "play"]
