"""The job queue: claims, leases, ordering keys and fencing tokens."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.ids import JobId
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.state_machines import JobState
from lab_agent.errors import InvalidTransitionError, LeaseLostError
from lab_agent.store.unit_of_work import SqlStore
from lab_agent.workflow.adapter_pauses import load_pauses, pause_adapter, resume_adapter
from tests.harness.store_counts import count_store
from tests.integration.store.conftest import NOW

SECOND = timedelta(seconds=1)
LEASE = timedelta(minutes=1)


async def test_job_round_trips(transact, factory):
    payload = {"value": Decimal("1.20"), "long": Decimal("0.123456789012345678901234567890"), "list": [1, "ё", None, True]}
    new = factory.job("a", payload=payload, order="R1", kind=JobKind.DELIVER_REPORT)
    assert await transact(lambda uow: uow.jobs.add(new)) is True
    (job,) = await transact(lambda uow: uow.jobs.list_for_order("R1"))
    assert job.payload == payload
    assert [str(job.payload[name]) for name in ("value", "long")] == ["1.20", "0.123456789012345678901234567890"]
    assert (job.dedup_key, job.kind, job.state, job.started) == ("a", JobKind.DELIVER_REPORT, JobState.DUE, False)
    assert (job.due_at, job.attempts, job.fencing_token, job.owner) == (factory.now, 0, 0, None)


async def test_dedup_key_adds_job_once(transact, factory):
    assert await transact(lambda uow: (uow.jobs.add(factory.job("a")), uow.jobs.add(factory.job("a")))) == (True, False)
    assert await transact(lambda uow: uow.jobs.add(factory.job("a"))) is False
    assert len(await transact.claim()) == 1


async def test_claim_takes_a_lease(transact, factory):
    await transact(lambda uow: uow.jobs.add(factory.job("a")))
    (mine,) = await transact.claim(owner="me")
    assert (mine.state, mine.owner, mine.fencing_token, mine.attempts) == (JobState.IN_FLIGHT, "me", 1, 1)
    assert mine.lease_until == factory.now + LEASE
    assert await transact(lambda uow: uow.jobs.get(mine.id)) == mine
    assert await transact.claim(owner="other") == ()


async def test_done_job_is_not_claimed_again(transact, factory):
    await transact(lambda uow: uow.jobs.add(factory.job("a", order="R1")))
    (mine,) = await transact.claim()
    await transact(lambda uow: uow.jobs.save(mine.complete(factory.now)))
    assert await transact.claim(now=factory.now + timedelta(days=1)) == ()
    assert await transact(lambda uow: uow.jobs.list_for_order("R1")) == ()
    (done,) = await transact(lambda uow: uow.jobs.list_for_order("R1", open_only=False))
    assert done.state is JobState.DONE


async def test_claim_takes_only_due_jobs_of_kinds(transact, factory):
    """A claim takes only due jobs of the kinds that were asked for."""
    await transact(lambda uow: uow.jobs.add(factory.job("later", due_at=factory.now + SECOND)))
    await transact(lambda uow: uow.jobs.add(factory.job("look", kind=JobKind.FETCH_ORDER)))
    assert await transact.claim(kinds=[JobKind.UPDATE_LINE_TASK]) == ()
    assert await transact.claim(kinds=[]) == ()
    assert await transact.claim(limit=0) == ()
    assert [each.dedup_key for each in await transact.claim(now=factory.now + SECOND)] == ["look", "later"]


async def test_claim_takes_longest_due_up_to_limit(transact, factory):
    for minutes in (1, 5, 3, 4, 2):
        due_at = factory.now - timedelta(minutes=minutes)
        await transact(lambda uow, due_at=due_at, name=str(minutes): uow.jobs.add(factory.job(name, due_at=due_at)))
    assert [each.dedup_key for each in await transact.claim(limit=2)] == ["5", "4"]
    assert [each.dedup_key for each in await transact.claim(limit=9)] == ["3", "2", "1"]


async def test_job_that_gives_way_is_claimed_last(transact, factory):
    for name in ("waiting", "new"):
        await transact(lambda uow, name=name: uow.jobs.add(factory.job(name, kind=JobKind.FETCH_ORDER, ordering_key=name)))
    (job,) = await transact.claim(limit=1)
    await transact(lambda uow: uow.jobs.save(job.wait(factory.now, -1, "held")))
    assert (await transact(lambda uow: uow.jobs.pending({JobKind.FETCH_ORDER}, now=factory.now))).kinds == {JobKind.FETCH_ORDER}
    claimed = [await transact.claim(limit=1) for _ in range(3)]
    assert [[(each.dedup_key, each.gives_way) for each in found] for found in claimed] == [
        [("new", False)],
        [("waiting", True)],
        [],
    ]


async def test_jobs_of_ordering_key_run_in_order(transact, factory):
    for once in ("a", "b", "c"):
        await transact(lambda uow, once=once: uow.jobs.add(factory.job(once, ordering_key="same")))
    await transact(lambda uow: uow.jobs.add(factory.job("other", ordering_key="other")))
    first, other = await transact.claim()
    assert (first.dedup_key, other.dedup_key) == ("a", "other")
    assert await transact.claim() == ()
    await transact(lambda uow: uow.jobs.save(first.complete(factory.now)))
    (second,) = await transact.claim()
    assert second.dedup_key == "b"


async def test_job_in_place_of_another_goes_in_its_turn(transact, factory):
    for once in ("a", "b", "c"):
        await transact(lambda uow, once=once: uow.jobs.add(factory.job(once, ordering_key="same")))
    (first,) = await transact.claim()
    then = factory.job("then", ordering_key="same", in_place_of=first.id)
    assert await transact(lambda uow: uow.jobs.add(then))
    assert await transact.claim() == (), "it waits for the one whose turn it has"
    ended, names = (first,), []
    while ended:
        names += [each.dedup_key for each in ended]
        await transact(lambda uow, ended=ended: [uow.jobs.release(each.complete(factory.now)) for each in ended])
        ended = await transact.claim()
    assert names == ["a", "then", "b", "c"]


@pytest.mark.parametrize(
    ("ending", "goes_on"), [("dead_letter", True), ("mark_obsolete", True), ("needs_review", False), ("reschedule", False)]
)
async def test_blocked_ordering_key_depends_on_job_state(transact, factory, ending, goes_on):
    """Whether the next job of an ordering key can be claimed depends on how the previous one ended."""
    for once in ("a", "b"):
        await transact(lambda uow, once=once: uow.jobs.add(factory.job(once, ordering_key="same")))
    (first,) = await transact.claim()
    later = factory.now + timedelta(hours=1)
    ended = first.reschedule(factory.now, later, "r") if ending == "reschedule" else getattr(first, ending)(factory.now, "reason")
    await transact(lambda uow: uow.jobs.save(ended))
    assert [each.dedup_key for each in await transact.claim()] == (["b"] if goes_on else [])


@pytest.mark.parametrize(("kind", "goes_on"), [(JobKind.DELIVER_REPORT, True), (JobKind.SUBMIT_ORDER, False)])
async def test_only_reports_pass_a_job_in_review(transact, factory, kind, goes_on):
    for once in ("a", "b"):
        await transact(lambda uow, once=once: uow.jobs.add(factory.job(once, ordering_key="same", kind=kind)))
    (first,) = await transact.claim()
    await transact(lambda uow: uow.jobs.save(first.needs_review(factory.now, "who knows")))
    assert [each.dedup_key for each in await transact.claim()] == (["b"] if goes_on else [])


async def test_rescheduled_job_waits_for_job_in_flight(transact, factory):
    """A retried job waits for the one of its ordering key in flight."""
    for once in ("a", "b"):
        await transact(lambda uow, once=once: uow.jobs.add(factory.job(once, ordering_key="same")))
    (first,) = await transact.claim()
    dead_letter = first.dead_letter(factory.now, "no right")
    await transact(lambda uow: uow.jobs.save(dead_letter))
    (second,) = await transact.claim()
    await transact(lambda uow: uow.jobs.save(replace(dead_letter, state=JobState.DUE)))
    assert await transact.claim() == ()
    await transact(lambda uow: uow.jobs.save(second.complete(factory.now)))
    assert [each.dedup_key for each in await transact.claim()] == ["a"]


async def test_expired_lease_makes_outcome_unknown(transact, factory):
    """An expired lease makes a job's outcome unknown and never makes the job due."""
    await transact(lambda uow: uow.jobs.add(factory.job("a")))
    (lost,) = await transact.claim(owner="dead")
    assert await transact.claim(owner="new", now=factory.now + LEASE - SECOND) == ()
    (found,) = await transact.claim(owner="new", now=factory.now + LEASE)
    assert (found.state, found.owner, found.fencing_token, found.attempts) == (JobState.OUTCOME_UNKNOWN, "new", 3, 2)
    for late in (lost.complete(factory.now), lost.mark_started(factory.now)):
        with pytest.raises(LeaseLostError):
            await transact(lambda uow, late=late: uow.jobs.save(late))
    with pytest.raises(LeaseLostError):
        await transact(lambda uow: uow.jobs.renew_lease(lost, now=factory.now, lease=LEASE))
    assert await transact(lambda uow: uow.jobs.get(found.id)) == found


async def test_lease_expires_whatever_kinds_are_claimed(transact, factory):
    await transact(lambda uow: uow.jobs.add(factory.job("a")))
    (lost,) = await transact.claim()
    assert await transact.claim(kinds=[JobKind.FETCH_ORDER], now=factory.now + LEASE) == ()
    assert (await transact(lambda uow: uow.jobs.get(lost.id))).state is JobState.OUTCOME_UNKNOWN


async def test_unknown_outcome_is_claimed_when_due(transact, factory):
    await transact(lambda uow: uow.jobs.add(factory.job("a")))
    (mine,) = await transact.claim()
    await transact(lambda uow: uow.jobs.save(mine.outcome_unknown(factory.now, factory.now + SECOND, "no answer")))
    assert await transact.claim() == ()
    (again,) = await transact.claim(now=factory.now + SECOND)
    assert (again.state, again.fencing_token) == (JobState.OUTCOME_UNKNOWN, 2)
    assert await transact.claim(now=factory.now + SECOND) == ()


async def test_unknown_outcome_reclaimed_after_its_verifier_died(transact, factory):
    await transact(lambda uow: uow.jobs.add(factory.job("a")))
    (mine,) = await transact.claim()
    await transact(lambda uow: uow.jobs.save(mine.outcome_unknown(factory.now, factory.now, "no answer")))
    (looker,) = await transact.claim(owner="looker")
    (next_one,) = await transact.claim(owner="next", now=factory.now + LEASE)
    assert (next_one.owner, next_one.fencing_token) == ("next", looker.fencing_token + 1)


async def test_heartbeat_renews_the_lease(transact, factory):
    await transact(lambda uow: uow.jobs.add(factory.job("a")))
    (mine,) = await transact.claim()
    later = factory.now + LEASE - SECOND
    await transact(lambda uow: uow.jobs.renew_lease(mine, now=later, lease=LEASE))
    assert await transact.claim(now=factory.now + LEASE) == ()
    await transact(lambda uow: uow.jobs.save(mine.complete(later)))
    with pytest.raises(LeaseLostError):
        await transact(lambda uow: uow.jobs.renew_lease(mine, now=later, lease=LEASE))


async def test_started_flag_is_stored(transact, factory):
    await transact(lambda uow: uow.jobs.add(factory.job("a")))
    (mine,) = await transact.claim()
    started = mine.mark_started(factory.now)
    await transact(lambda uow: uow.jobs.save(started))
    assert await transact(lambda uow: uow.jobs.get(mine.id)) == started


async def test_make_due_affects_one_kind(transact, factory):
    far = factory.now + timedelta(days=1)
    await transact(lambda uow: uow.jobs.add(factory.job("a", due_at=far)))
    await transact(lambda uow: uow.jobs.add(factory.job("b", due_at=far, kind=JobKind.SUBMIT_ORDER)))
    await transact(lambda uow: uow.jobs.add(factory.job("now")))
    assert await transact(lambda uow: uow.jobs.make_due(JobKind.UPDATE_LINE_TASK, now=factory.now)) == 1
    assert sorted(each.dedup_key for each in await transact.claim()) == ["a", "now"]


async def test_make_due_leaves_readings_their_time(transact, factory):
    """Of orders that are fetched, those alone that give way: the first list of an order's lines is read again after a while."""
    far = factory.now + timedelta(days=1)
    for name in ("waits", "first"):
        await transact(lambda uow, name=name: uow.jobs.add(factory.job(name, kind=JobKind.FETCH_ORDER)))
    for job in await transact.claim():
        later = job.wait(factory.now, 86400, "held") if job.dedup_key == "waits" else job.reschedule(factory.now, far, "again")
        await transact(lambda uow, later=later: uow.jobs.save(later))
    assert await transact(lambda uow: uow.jobs.make_due(JobKind.FETCH_ORDER, now=factory.now)) == 1
    assert [each.dedup_key for each in await transact.claim()] == ["waits"]


async def test_needing_operator_lists_dead_letters_and_reviews(transact, factory):
    for name in ("a", "b", "c", "d"):
        await transact(lambda uow, name=name: uow.jobs.add(factory.job(name)))
    assert await transact(lambda uow: uow.jobs.needing_operator(limit=9)) == ()
    first, second, third, _ = await transact.claim(limit=4)
    for left in (
        second.needs_review(factory.now, "who knows"),
        first.dead_letter(factory.now, "no right"),
        third.complete(factory.now),
    ):
        await transact(lambda uow, left=left: uow.jobs.save(left))
    found = await transact(lambda uow: uow.jobs.needing_operator(limit=9))
    assert [(job.dedup_key, job.state.value) for job in found] == [("a", "dead_letter"), ("b", "needs_review")]
    start = await transact(lambda uow: uow.jobs.needing_operator(limit=1))
    rest = await transact(lambda uow: uow.jobs.needing_operator(after=start[0], limit=9))
    assert (*start, *rest) == found
    for wanted, names in (
        ({"state": JobState.NEEDS_REVIEW}, ["b"]),
        ({"kind": JobKind.UPDATE_LINE_TASK}, ["a", "b"]),
        ({"kind": JobKind.SUBMIT_ORDER}, []),
    ):
        few = await transact(lambda uow, wanted=wanted: uow.jobs.needing_operator(**wanted, limit=9))
        assert [job.dedup_key for job in few] == names


async def test_jobs_of_a_cause_are_found_by_system_and_kind(transact, factory):
    await transact(lambda uow: uow.jobs.add(factory.job("a", system="chemistry")))
    await transact(lambda uow: uow.jobs.add(factory.job("b", system="serology")))
    for mine in await transact.claim(limit=2):
        failed = mine.dead_letter(factory.now, "rejected", FailureCause.WRITE_REJECTED)
        await transact(lambda uow, failed=failed: uow.jobs.save(failed))
    kind = JobKind.UPDATE_LINE_TASK
    for cause, system, of_kind, names in (
        (FailureCause.WRITE_REJECTED, None, None, ["a", "b"]),
        (FailureCause.WRITE_REJECTED, "serology", kind, ["b"]),
        (FailureCause.WRITE_REJECTED, None, JobKind.SUBMIT_ORDER, []),
        (FailureCause.LIS_DISK_FULL, None, None, []),
    ):
        asked = {"system": system, "kind": of_kind, "after": JobId(0), "limit": 9}
        found = await transact(lambda uow, cause=cause, asked=asked: uow.jobs.of_cause(cause, **asked))
        assert [job.dedup_key for job in found] == names


async def test_unknown_job_is_reported(transact, factory):
    await transact(lambda uow: uow.jobs.add(factory.job("a")))
    (mine,) = await transact.claim()
    assert await transact(lambda uow: uow.jobs.get(4711)) is None
    with pytest.raises(LeaseLostError):
        await transact(lambda uow: uow.jobs.save(replace(mine, id=4711)))


async def test_jobs_added_together_are_numbered_in_order(transact, factory):
    """Each is told whether it is new, also where the list itself repeats one."""
    await transact(lambda uow: uow.jobs.add(factory.job("b")))
    names = ("a", "b", "c", "a", "x" * 700)
    added = await transact(lambda uow: uow.jobs.add_all([factory.job(name, ordering_key="same", order="R1") for name in names]))
    assert added == (True, False, True, False, True)
    found = await transact(lambda uow: uow.jobs.list_for_order("R1"))
    assert [job.dedup_key[:1] for job in found] == ["a", "c", "x"]
    assert await transact(lambda uow: uow.jobs.add_all([])) == ()


async def test_jobs_saved_together_or_not_at_all(transact, factory):
    await transact(lambda uow: uow.jobs.add_all([factory.job("a"), factory.job("b")]))
    first, second = await transact.claim()
    late = replace(second, fencing_token=second.fencing_token - 1)
    with pytest.raises(LeaseLostError):
        await transact(lambda uow: uow.jobs.save_all([first.complete(factory.now), late.complete(factory.now)]))
    assert await transact(lambda uow: uow.jobs.get(first.id)) == first
    await transact(lambda uow: uow.jobs.save_all([first.complete(factory.now), second.complete(factory.now)]))
    assert [(await transact(lambda uow, job=job: uow.jobs.get(job.id))).state for job in (first, second)] == [JobState.DONE] * 2


async def test_each_queue_is_claimed_up_to_its_own_limit(transact, factory):
    """A backlog of one kind hides neither the other kind of its queue nor other queues."""
    line, order, fetch = JobKind.UPDATE_LINE_TASK, JobKind.UPDATE_ORDER_TASK, JobKind.FETCH_ORDER
    await transact(lambda uow: uow.jobs.add_all([factory.job(f"line{number}", kind=line) for number in range(20)]))
    earlier = factory.now - SECOND
    await transact(lambda uow: uow.jobs.add_all([factory.job(f"order{n}", kind=order, due_at=earlier) for n in range(2)]))
    await transact(lambda uow: uow.jobs.add_all([factory.job(f"fetch{number}", kind=fetch) for number in range(4)]))
    limits = {frozenset({line, order}): 3, frozenset({fetch}): 2, frozenset({JobKind.MATCH_REPORT}): 5, frozenset(): 1}
    found = await transact(lambda uow: uow.jobs.claim(limits, owner="one", now=factory.now, lease=LEASE))
    assert [job.dedup_key for job in found] == ["order0", "order1", "line0", "fetch0", "fetch1"]


async def test_look_tells_kinds_that_can_be_claimed(transact, factory):
    await transact(
        lambda uow: uow.jobs.add_all(
            [
                factory.job("a", ordering_key="same", kind=JobKind.SUBMIT_ORDER),
                factory.job("b", ordering_key="same", kind=JobKind.CANCEL_AT_LIS),
                factory.job("later", kind=JobKind.FETCH_ORDER, due_at=factory.now + SECOND),
                factory.job("match", kind=JobKind.MATCH_REPORT),
            ]
        )
    )

    async def look(kinds=tuple(JobKind), now=factory.now):
        found = await transact.store.run_read_only(lambda uow: uow.jobs.pending(kinds, now=now))
        return found.kinds, found.has_expired_lease

    assert await look() == ({JobKind.SUBMIT_ORDER, JobKind.MATCH_REPORT}, False)
    assert await look([JobKind.MATCH_REPORT]) == ({JobKind.MATCH_REPORT}, False)
    assert await look([]) == (frozenset(), False)
    await transact.claim()
    assert await look() == (frozenset(), False)
    assert await look(now=factory.now + LEASE) == ({JobKind.FETCH_ORDER}, True)


async def test_leases_are_renewed_together(transact, factory):
    await transact(lambda uow: uow.jobs.add_all([factory.job(name) for name in ("a", "b", "c")]))
    first, second, third = await transact.claim()
    await transact(lambda uow: uow.jobs.save(second.complete(factory.now)))
    stolen = replace(third, fencing_token=third.fencing_token - 1)
    later = factory.now + SECOND
    ours = await transact(lambda uow: uow.jobs.renew_leases([first, second, stolen], now=later, lease=LEASE))
    assert ours == {(first.id, first.fencing_token)}
    assert (await transact(lambda uow: uow.jobs.get(first.id))).lease_until == later + LEASE
    assert (await transact(lambda uow: uow.jobs.get(third.id))).lease_until == third.lease_until
    assert await transact(lambda uow: uow.jobs.renew_leases([], now=later, lease=LEASE)) == frozenset()


async def test_unit_of_work_tells_what_it_made_due(transact, factory):
    """What it has claimed itself is not told; what waited for a job that ends is."""
    told = []

    def note(work):
        def noted(uow):
            result = work(uow)
            told.append(uow.jobs.made_due)
            return result

        return noted

    kinds = (JobKind.SUBMIT_ORDER, JobKind.CANCEL_AT_LIS)
    await transact(note(lambda uow: uow.jobs.add_all([factory.job(kind.value, kind=kind, ordering_key="one") for kind in kinds])))
    (first,) = await transact.claim()
    await transact(note(lambda uow: uow.jobs.release(first.complete(factory.now))))
    (second,) = await transact.claim()
    await transact(note(lambda uow: uow.jobs.release(second.reschedule(factory.now, factory.now + SECOND, "later"))))
    await transact(note(lambda uow: uow.jobs.make_due(JobKind.CANCEL_AT_LIS, now=factory.now)))

    def add_and_claim(uow):
        uow.jobs.add_all([factory.job("fetch", kind=JobKind.FETCH_ORDER), factory.job("match", kind=JobKind.MATCH_REPORT)])
        limits = {frozenset({JobKind.FETCH_ORDER}): 2, frozenset({JobKind.MATCH_REPORT}): 1}
        return uow.jobs.claim(limits, owner="one", now=factory.now, lease=LEASE)

    assert len(await transact(note(add_and_claim))) == 2
    assert told == [set(kinds), {JobKind.CANCEL_AT_LIS}, set(), {JobKind.CANCEL_AT_LIS}, {JobKind.MATCH_REPORT}]
    with pytest.raises(LeaseLostError):
        await transact(lambda uow: uow.jobs.release(replace(first.complete(factory.now), fencing_token=0)))


_AT_A_SYSTEM = [JobKind.SUBMIT_ORDER, JobKind.CANCEL_AT_LIS]


def _pause(uow, system, *, resume=False):
    if resume:
        resume_adapter(uow, system, by="ana", note="it is back", now=NOW)
    else:
        pause_adapter(uow, system, by="ana", note="a new server", now=NOW)


async def test_nothing_is_claimed_for_a_paused_system_until_it_is_resumed(transact, factory):
    for kind in _AT_A_SYSTEM:
        for system in ("main", "micro"):
            await transact(
                lambda uow, kind=kind, system=system: uow.jobs.add(factory.job(f"{kind}-{system}", kind=kind, system=system))
            )
    await transact(lambda uow: uow.jobs.add(factory.job("report", kind=JobKind.DELIVER_REPORT, system="main")))
    await transact(lambda uow: _pause(uow, "main"))
    assert {each.dedup_key for each in await transact.claim()} == {"submit_order-micro", "cancel_at_lis-micro", "report"}
    assert await transact.claim() == ()
    assert (await transact(lambda uow: uow.jobs.pending(_AT_A_SYSTEM, now=factory.now))).kinds == frozenset()
    await transact(lambda uow: _pause(uow, "main", resume=True))
    assert (await transact(lambda uow: uow.jobs.pending(_AT_A_SYSTEM, now=factory.now))).kinds == frozenset(_AT_A_SYSTEM)
    claimed = await transact.claim()
    assert {(each.dedup_key, each.attempts) for each in claimed} == {("submit_order-main", 1), ("cancel_at_lis-main", 1)}


async def test_unknown_outcome_at_a_paused_system_is_not_verified(transact, factory):
    """What its worker left is taken from it, and waits for the end of the pause."""
    await transact(lambda uow: uow.jobs.add(factory.job("a", kind=JobKind.SUBMIT_ORDER, system="main")))
    (mine,) = await transact.claim()
    await transact(lambda uow: (uow.jobs.save(mine.mark_started(factory.now)), _pause(uow, "main")))
    later = factory.now + 2 * LEASE
    assert await transact.claim(now=later) == ()
    assert (await transact(lambda uow: uow.jobs.get(mine.id))).state is JobState.OUTCOME_UNKNOWN
    await transact(lambda uow: _pause(uow, "main", resume=True))
    (again,) = await transact.claim(now=later)
    assert (again.id, again.state) == (mine.id, JobState.OUTCOME_UNKNOWN)


async def test_pause_is_written_once_with_its_alert(transact):
    await transact(lambda uow: _pause(uow, "main"))
    with pytest.raises(InvalidTransitionError, match="paused already, by ana"):
        await transact(lambda uow: _pause(uow, "main"))
    (pause,) = (await transact(lambda uow: load_pauses(uow, ["main", "micro"]))).values()
    assert (pause.system, pause.since, pause.by) == ("main", NOW, "ana")
    (alert,) = await transact(lambda uow: uow.alerts.all_open())
    assert (str(alert.key), alert.since) == ("lis.paused/main", NOW)
    assert "a new server" not in alert.detail
    await transact(lambda uow: _pause(uow, "main", resume=True))
    assert await transact(lambda uow: (load_pauses(uow, ["main"]), uow.alerts.all_open())) == ({}, ())
    with pytest.raises(InvalidTransitionError, match="not paused"):
        await transact(lambda uow: _pause(uow, "main", resume=True))


async def test_pause_is_in_the_database(store, transact, sql_url, cipher):
    """Another worker, or the same after a restart, finds it."""
    await transact(lambda uow: _pause(uow, "main"))
    other = SqlStore(sql_url, cipher)
    try:
        assert await other.run_read_only(lambda uow: list(load_pauses(uow, ["main"]))) == ["main"]
    finally:
        await other.close()


async def test_claim_beside_a_pause_is_one_look(store, transact, factory, sql_url):
    """Whether a system is paused costs no statement of its own."""
    await transact(lambda uow: _pause(uow, "main"))
    await transact(lambda uow: uow.jobs.add(factory.job("a", kind=JobKind.SUBMIT_ORDER, system="micro")))
    with count_store(store) as counts:
        assert len(await transact.claim(kinds=_AT_A_SYSTEM)) == 1
    assert counts.statements == (2 if sql_url.startswith("sqlite") else 3)  # pending, and the claim
