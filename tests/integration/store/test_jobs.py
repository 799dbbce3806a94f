"""The job queue: claims, leases, ordering keys and fencing tokens."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from lab_agent.orders.pause_actions import load_pauses, pause_adapter, resume_adapter
from lab_agent.queue.failure_causes import FailureCause
from lab_agent.queue.job_records import JobKind
from lab_agent.shared.errors import InvalidTransitionError, LeaseLostError
from lab_agent.shared.ids import JobId
from lab_agent.shared.state_machines import JobState
from tests.integration.store.conftest import LEASE, NOW

SECOND = timedelta(seconds=1)


@pytest.fixture
def add(transact, factory):
    """Adds jobs by their names."""

    async def add_jobs(*names, **fields):
        return await transact.jobs.add_all([factory.job(name, **fields) for name in names])

    return add_jobs


@pytest.fixture
def claim(transact):
    """Claims, and gives the names."""

    async def claim_names(**options):
        return [each.dedup_key for each in await transact.claim(**options)]

    return claim_names


async def test_job_round_trips(transact, factory):
    payload = {"value": Decimal("1.20"), "long": Decimal("0.123456789012345678901234567890"), "list": [1, "ё", None, True]}
    new = factory.job("a", payload=payload, order="R1", kind=JobKind.DELIVER_REPORT)
    assert await transact.jobs.add(new) is True
    (job,) = await transact.jobs.list_for_order("R1")
    assert job.payload == payload
    assert [str(job.payload[name]) for name in ("value", "long")] == ["1.20", "0.123456789012345678901234567890"]
    assert (job.dedup_key, job.kind, job.state, job.started) == ("a", JobKind.DELIVER_REPORT, JobState.DUE, False)
    assert (job.due_at, job.attempts, job.fencing_token, job.owner) == (factory.now, 0, 0, None)


async def test_claim_takes_a_lease(transact, add, claim):
    await add("a", order="R1")
    (mine,) = await transact.claim(owner="me")
    assert (mine.state, mine.owner, mine.fencing_token, mine.attempts) == (JobState.IN_FLIGHT, "me", 1, 1)
    assert mine.lease_until == NOW + LEASE
    assert await transact.jobs.get(mine.id) == mine
    assert await claim(owner="other") == []
    started = mine.mark_started(NOW)
    await transact.jobs.save(started)
    assert await transact.jobs.get(mine.id) == started
    await transact.jobs.save(started.complete(NOW))
    assert await claim(now=NOW + timedelta(days=1)) == []
    assert await transact.jobs.list_for_order("R1") == ()
    (done,) = await transact.jobs.list_for_order("R1", open_only=False)
    assert done.state is JobState.DONE
    assert await transact.jobs.get(4711) is None
    with pytest.raises(LeaseLostError):
        await transact.jobs.save(replace(mine, id=4711))


async def test_claim_takes_longest_due_jobs_of_kinds(add, claim):
    await add("later", due_at=NOW + SECOND)
    await add("look", kind=JobKind.FETCH_ORDER)
    for asked in ({"kinds": [JobKind.UPDATE_LINE_TASK]}, {"kinds": []}, {"limit": 0}):
        assert await claim(**asked) == []
    assert await claim(now=NOW + SECOND) == ["look", "later"]
    for minutes in (1, 5, 3, 4, 2):
        await add(str(minutes), due_at=NOW - timedelta(minutes=minutes))
    assert [await claim(limit=2), await claim(limit=9)] == [["5", "4"], ["3", "2", "1"]]


async def test_job_that_gives_way_is_claimed_last(transact, add):
    await add("waiting", "new", kind=JobKind.FETCH_ORDER)
    (job,) = await transact.claim(limit=1)
    await transact.jobs.save(job.wait(NOW, -1, "held"))
    assert (await transact.jobs.pending({JobKind.FETCH_ORDER}, now=NOW)).kinds == {JobKind.FETCH_ORDER}
    claimed = [await transact.claim(limit=1) for _ in range(3)]
    assert [[(each.dedup_key, each.gives_way) for each in found] for found in claimed] == [
        [("new", False)],
        [("waiting", True)],
        [],
    ]


async def test_jobs_of_ordering_key_run_in_order(transact, factory, add, claim):
    """One at a time; a job in place of another one goes in its turn."""
    await add("a", "b", "c", ordering_key="same")
    await add("other", ordering_key="other")
    first, other = await transact.claim()
    assert (first.dedup_key, other.dedup_key) == ("a", "other")
    assert await transact.jobs.add(factory.job("then", ordering_key="same", in_place_of=first.id))
    assert await claim() == [], "it waits for the one whose turn it has"
    ended, names = (first,), []
    while ended:
        names += [each.dedup_key for each in ended]
        await transact(lambda uow, ended=ended: [uow.jobs.release(each.complete(NOW)) for each in ended])
        ended = await transact.claim()
    assert names == ["a", "then", "b", "c"]


@pytest.mark.parametrize(
    ("kind", "ending", "goes_on"),
    [
        (JobKind.UPDATE_LINE_TASK, "dead_letter", True),
        (JobKind.UPDATE_LINE_TASK, "mark_obsolete", True),
        (JobKind.UPDATE_LINE_TASK, "needs_review", False),
        (JobKind.SUBMIT_ORDER, "needs_review", False),
        (JobKind.DELIVER_REPORT, "needs_review", True),
        (JobKind.UPDATE_LINE_TASK, "reschedule", False),
    ],
)
async def test_blocked_ordering_key_depends_on_job_state(transact, add, claim, kind, ending, goes_on):
    await add("a", "b", ordering_key="same", kind=kind)
    (first,) = await transact.claim()
    later = NOW + timedelta(hours=1)
    ended = first.reschedule(NOW, later, "r") if ending == "reschedule" else getattr(first, ending)(NOW, "reason")
    await transact.jobs.save(ended)
    assert await claim() == (["b"] if goes_on else [])


async def test_expired_lease_makes_outcome_unknown(transact, add):
    """Never due; whatever kinds are claimed, and again where the one that verified it died, too."""
    await add("a")
    (lost,) = await transact.claim(owner="dead")
    assert await transact.claim(owner="new", now=NOW + LEASE - SECOND) == ()
    assert await transact.claim(kinds=[JobKind.FETCH_ORDER], now=NOW + LEASE) == ()
    assert (await transact.jobs.get(lost.id)).state is JobState.OUTCOME_UNKNOWN
    (found,) = await transact.claim(owner="new", now=NOW + LEASE)
    assert (found.state, found.owner, found.fencing_token, found.attempts) == (JobState.OUTCOME_UNKNOWN, "new", 3, 2)
    for late in (lost.complete(NOW), lost.mark_started(NOW)):
        with pytest.raises(LeaseLostError):
            await transact.jobs.save(late)
    with pytest.raises(LeaseLostError):
        await transact.jobs.renew_lease(lost, now=NOW, lease=LEASE)
    assert await transact.jobs.get(found.id) == found
    (next_one,) = await transact.claim(owner="next", now=NOW + 2 * LEASE)
    assert (next_one.owner, next_one.fencing_token > found.fencing_token) == ("next", True)


async def test_leases_are_renewed(transact, add, claim):
    """One of them, or several together; who has none any more is told."""
    await add("a", "b", "c")
    first, second, third = await transact.claim()
    later = NOW + LEASE - SECOND
    await transact.jobs.renew_lease(second, now=later, lease=LEASE)
    stolen = [replace(each, fencing_token=each.fencing_token - 1) for each in (first, third)]  # two leases of `first`
    ours = await transact.jobs.renew_leases([first, *stolen], now=later, lease=LEASE)
    assert ours == {(first.id, first.fencing_token)}
    until = [(await transact.jobs.get(each.id)).lease_until for each in (first, second, third)]
    assert until == [later + LEASE, later + LEASE, third.lease_until]
    assert await claim(now=NOW + LEASE) == ["c"]
    await transact.jobs.save(second.complete(later))
    with pytest.raises(LeaseLostError):
        await transact.jobs.renew_lease(second, now=later, lease=LEASE)
    assert await transact.jobs.renew_leases([second], now=later, lease=LEASE) == frozenset()
    assert await transact.jobs.renew_leases([], now=later, lease=LEASE) == frozenset()


async def test_make_due_affects_one_kind(transact, add, claim):
    """Of orders that are fetched, those alone that give way: the first list of an order's lines is read again after a while."""
    far = NOW + timedelta(days=1)
    await add("a", due_at=far)
    await add("b", due_at=far, kind=JobKind.SUBMIT_ORDER)
    await add("now")
    assert await transact.jobs.make_due(JobKind.UPDATE_LINE_TASK, now=NOW) == 1
    assert sorted(await claim()) == ["a", "now"]
    await add("waits", "first", kind=JobKind.FETCH_ORDER)
    for job in await transact.claim():
        await transact.jobs.save(job.wait(NOW, 86400, "held") if job.dedup_key == "waits" else job.reschedule(NOW, far, "again"))
    assert await transact.jobs.make_due(JobKind.FETCH_ORDER, now=NOW) == 1
    assert await claim() == ["waits"]


async def test_needing_operator_lists_dead_letters_and_reviews(transact, add):
    await add("a", "b", "c", "d")
    assert await transact.jobs.needing_operator(limit=9) == ()
    first, second, third, _ = await transact.claim(limit=4)
    ended = (second.needs_review(NOW, "who knows"), first.dead_letter(NOW, "no right"), third.complete(NOW))
    await transact(lambda uow: [uow.jobs.save(each) for each in ended])
    found = await transact.jobs.needing_operator(limit=9)
    assert [(job.dedup_key, job.state.value) for job in found] == [("a", "dead_letter"), ("b", "needs_review")]
    assert await transact.jobs.needing_operator(limit=1) == found[:1]
    assert await transact.jobs.needing_operator(after=found[0], limit=9) == found[1:]
    assert await transact.jobs.needing_operator(state=JobState.NEEDS_REVIEW, limit=9) == found[1:]
    assert await transact.jobs.needing_operator(kind=JobKind.UPDATE_LINE_TASK, limit=9) == found
    assert await transact.jobs.needing_operator(kind=JobKind.SUBMIT_ORDER, limit=9) == ()


async def test_jobs_of_a_cause_are_found_by_system_and_kind(transact, add):
    await add("a", system="chemistry")
    await add("b", system="serology")
    for mine in await transact.claim(limit=2):
        await transact.jobs.save(mine.dead_letter(NOW, "rejected", FailureCause.WRITE_REJECTED))
    for cause, system, kind, names in (
        (FailureCause.WRITE_REJECTED, None, None, ["a", "b"]),
        (FailureCause.WRITE_REJECTED, "serology", JobKind.UPDATE_LINE_TASK, ["b"]),
        (FailureCause.WRITE_REJECTED, None, JobKind.SUBMIT_ORDER, []),
        (FailureCause.LIS_DISK_FULL, None, None, []),
    ):
        found = await transact.jobs.of_cause(cause, system=system, kind=kind, after=JobId(0), limit=9)
        assert [job.dedup_key for job in found] == names


async def test_jobs_added_together_are_numbered_in_order(transact, factory, add):
    """Each is told whether it is new, also where the list itself repeats one."""
    assert await transact(lambda uow: (uow.jobs.add(factory.job("b")), uow.jobs.add(factory.job("b")))) == (True, False)
    assert await transact.jobs.add(factory.job("b")) is False
    added = await add("a", "b", "c", "a", "x" * 700, ordering_key="same", order="R1")
    assert added == (True, False, True, False, True)
    assert [job.dedup_key[:1] for job in await transact.jobs.list_for_order("R1")] == ["a", "c", "x"]
    assert await transact.jobs.add_all([]) == ()


async def test_jobs_saved_together_or_not_at_all(transact, add):
    await add("a", "b")
    first, second = await transact.claim()
    late = replace(second, fencing_token=second.fencing_token - 1)
    with pytest.raises(LeaseLostError):
        await transact.jobs.save_all([first.complete(NOW), late.complete(NOW)])
    assert await transact.jobs.get(first.id) == first
    await transact.jobs.save_all([first.complete(NOW), second.complete(NOW)])
    assert [(await transact.jobs.get(job.id)).state for job in (first, second)] == [JobState.DONE] * 2


async def test_each_queue_is_claimed_up_to_its_own_limit(transact, add):
    """A backlog of one kind hides neither the other kind of its queue nor other queues."""
    line, order, fetch = JobKind.UPDATE_LINE_TASK, JobKind.UPDATE_ORDER_TASK, JobKind.FETCH_ORDER
    await add(*(f"line{number}" for number in range(20)), kind=line)
    await add("order0", "order1", kind=order, due_at=NOW - SECOND)
    await add(*(f"fetch{number}" for number in range(4)), kind=fetch)
    limits = {frozenset({line, order}): 3, frozenset({fetch}): 2, frozenset({JobKind.MATCH_REPORT}): 5, frozenset(): 1}
    found = await transact.jobs.claim(limits, owner="one", now=NOW, lease=LEASE)
    assert [job.dedup_key for job in found] == ["order0", "order1", "line0", "fetch0", "fetch1"]


async def test_look_tells_kinds_that_can_be_claimed(transact, add):
    await add("a", ordering_key="same", kind=JobKind.SUBMIT_ORDER)
    await add("b", ordering_key="same", kind=JobKind.CANCEL_AT_LIS)
    await add("later", kind=JobKind.FETCH_ORDER, due_at=NOW + SECOND)
    await add("match", kind=JobKind.MATCH_REPORT)

    async def look(kinds=tuple(JobKind), now=NOW):
        found = await transact.store.run_read_only(lambda uow: uow.jobs.pending(kinds, now=now))
        return found.kinds, found.has_expired_lease

    assert await look() == ({JobKind.SUBMIT_ORDER, JobKind.MATCH_REPORT}, False)
    assert await look([JobKind.MATCH_REPORT]) == ({JobKind.MATCH_REPORT}, False)
    assert await look([]) == (frozenset(), False)
    await transact.claim()
    assert await look() == (frozenset(), False)
    assert await look(now=NOW + LEASE) == ({JobKind.FETCH_ORDER}, True)


async def test_unit_of_work_tells_what_it_made_due(transact, factory):
    """What it has claimed itself is not told; what waited for a job that ends is."""

    async def made_due(work):
        return await transact(lambda uow: (work(uow), uow.jobs.made_due)[1])

    _, next_kind = kinds = (JobKind.SUBMIT_ORDER, JobKind.CANCEL_AT_LIS)
    jobs = [factory.job(kind.value, kind=kind, ordering_key="one") for kind in kinds]
    assert await made_due(lambda uow: uow.jobs.add_all(jobs)) == set(kinds)
    (first,) = await transact.claim()
    assert await made_due(lambda uow: uow.jobs.release(first.complete(NOW))) == {next_kind}
    (second,) = await transact.claim()
    assert await made_due(lambda uow: uow.jobs.release(second.reschedule(NOW, NOW + SECOND, "later"))) == set()
    assert await made_due(lambda uow: uow.jobs.make_due(next_kind, now=NOW)) == {next_kind}

    def add_and_claim(uow):
        uow.jobs.add_all([factory.job("fetch", kind=JobKind.FETCH_ORDER), factory.job("match", kind=JobKind.MATCH_REPORT)])
        assert len(uow.jobs.claim({frozenset({JobKind.FETCH_ORDER}): 2}, owner="one", now=NOW, lease=LEASE)) == 1

    assert await made_due(add_and_claim) == {JobKind.MATCH_REPORT}
    with pytest.raises(LeaseLostError):
        await transact.jobs.release(replace(first.complete(NOW), fencing_token=0))


# --- a system that an operator has paused

_AT_A_SYSTEM = [JobKind.SUBMIT_ORDER, JobKind.CANCEL_AT_LIS]


def _pause(uow, system="main"):
    pause_adapter(uow, system, by="ana", note="a new server", now=NOW)


def _resume(uow):
    resume_adapter(uow, "main", by="ana", note="it is back", now=NOW)


async def test_nothing_is_claimed_for_a_paused_system_until_it_is_resumed(transact, add, claim):
    for kind in _AT_A_SYSTEM:
        for system in ("main", "micro"):
            await add(f"{kind}-{system}", kind=kind, system=system)
    await add("report", kind=JobKind.DELIVER_REPORT, system="main")
    await transact(_pause)
    assert set(await claim()) == {"submit_order-micro", "cancel_at_lis-micro", "report"}
    assert await claim() == []
    assert (await transact.jobs.pending(_AT_A_SYSTEM, now=NOW)).kinds == frozenset()
    await transact(_resume)
    assert (await transact.jobs.pending(_AT_A_SYSTEM, now=NOW)).kinds == frozenset(_AT_A_SYSTEM)
    claimed = await transact.claim()
    assert {(each.dedup_key, each.attempts) for each in claimed} == {("submit_order-main", 1), ("cancel_at_lis-main", 1)}


async def test_unknown_outcome_at_a_paused_system_is_not_verified(transact, add):
    """What its worker left is taken from it, and waits for the end of the pause."""
    await add("a", kind=JobKind.SUBMIT_ORDER, system="main")
    (mine,) = await transact.claim()
    await transact(lambda uow: (uow.jobs.save(mine.mark_started(NOW)), _pause(uow)))
    later = NOW + 2 * LEASE
    assert await transact.claim(now=later) == ()
    assert (await transact.jobs.get(mine.id)).state is JobState.OUTCOME_UNKNOWN
    await transact(_resume)
    (again,) = await transact.claim(now=later)
    assert (again.id, again.state) == (mine.id, JobState.OUTCOME_UNKNOWN)


async def test_pause_is_written_once_with_its_alert(transact):
    await transact(_pause)
    with pytest.raises(InvalidTransitionError, match="paused already, by ana"):
        await transact(_pause)
    (pause,) = (await transact(lambda uow: load_pauses(uow, ["main", "micro"]))).values()
    assert (pause.system, pause.since, pause.by) == ("main", NOW, "ana")
    (alert,) = await transact.alerts.all_open()
    assert (str(alert.key), alert.since) == ("lis.paused/main", NOW)
    assert "a new server" not in alert.detail
    await transact(_resume)
    assert await transact(lambda uow: (load_pauses(uow, ["main"]), uow.alerts.all_open())) == ({}, ())
    with pytest.raises(InvalidTransitionError, match="not paused"):
        await transact(_resume)
