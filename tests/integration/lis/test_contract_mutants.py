"""The contract suite notices every fault that an adapter may have: each of these is the template's adapter with one fault.

That the adapter without a fault passes is shown by `test_adapter_template`, and, as patient as here, by each test of a fault.
"""

import asyncio
import hashlib
import importlib
import json
import re
import secrets
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab_agent.lis.adapter_template import create_project
from lab_agent.lis.contract import dump_message, dump_order, load_message
from lab_agent.lis.testing import AdapterContract, bench_runs, make_order, make_report
from lab_agent.shared.errors import DataInvalidError, Failure, LisOutcomeUnknown, LisRejected, LisUnavailable

Members = dict[str, Any]
"""What of a class is replaced."""


def good(adapter: Any) -> Any:
    """The adapter without its fault."""
    return super(type(adapter), adapter)


def returning(answer: object) -> Any:
    async def call(*_: Any) -> object:
        return answer

    return call


def failing(method: str, told: type[Failure], instead: Failure) -> Members:
    async def call(adapter: Any, *args: Any) -> Any:
        try:
            return await getattr(good(adapter), method)(*args)
        except told:
            raise instead from None

    return {method: call}


def taking(name: Any = lambda number, _: f"result-{number}", read: Any = load_message) -> Members:
    async def take(adapter: Any, number: str) -> int:
        raw = (await adapter._ask("GET", f"results/{number}")).content
        new = await adapter._inbox.accept(name(number, raw), read(raw))
        await adapter._ask("PUT", f"results/{number}/taken")
        return int(new)

    return {"_take": take}


def taking_bad(then: str = "refused", *, tell: bool = True, raw: bool = True, name: Any = str) -> Members:
    async def take(adapter: Any, number: str) -> int:
        body = (await adapter._ask("GET", f"results/{number}")).content
        try:
            load_message(body)
        except DataInvalidError as error:
            if tell:
                await adapter._inbox.reject(name(number), str(error.problems[0]), raw=body if raw else None)
            if then:
                await adapter._ask("PUT", f"results/{number}/{then}")
            return 0
        return int(await good(adapter)._take(number))

    return {"_take": take}


async def submit_twice(adapter: Any, order: Any) -> Any:
    await adapter._send("PUT", f"orders/{order.key}-{secrets.token_hex(2)}", dump_order(order))
    return await good(adapter).submit(order)


async def deny(adapter: Any, key: str) -> bool:
    with suppress(Failure):
        return bool(await good(adapter).was_received(key))
    return False


async def acknowledge_first(adapter: Any, number: str) -> int:
    raw = (await adapter._ask("GET", f"results/{number}")).content
    await adapter._ask("PUT", f"results/{number}/taken")
    return int(await adapter._inbox.accept(f"result-{number}", load_message(raw)))


async def lose_withdrawal(adapter: Any, *args: Any) -> None:
    with suppress(Failure):
        await good(adapter).cancel(*args)


async def start_once(adapter: Any, inbox: Any) -> None:
    try:
        await adapter._ask("GET", "health")
    except LisUnavailable:
        raise RuntimeError("away") from None
    await good(adapter).start(inbox)


async def block(adapter: Any) -> int:
    time.sleep(1)  # noqa: ASYNC251 — the fault
    return int(await good(adapter).collect())


async def send_blocking(adapter: Any, method: str, path: str, content: Any = None, **options: Any) -> Any:
    async def once() -> Any:
        other = type(adapter)(adapter._settings, "other")
        try:
            return await good(other)._send(method, path, content, **options)
        finally:
            await other.stop()

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(lambda: asyncio.run(once())).result()  # waits in the event loop: the fault


BAD, LOST = "test_a_bad_result_is_told_and_kept", "test_a_withdrawal_is_not_lost_while_the_lis_is_unreachable"
ONCE, PREPARED, BUSY = (
    f"test_{name}"
    for name in (
        "orders_arrive_once_each",
        "a_prepared_order_is_not_seen_by_the_lis",
        "a_busy_lis_is_tried_again_when_it_asks_to",
    )
)
DIGITS = "test_a_report_arrives_digit_for_digit_and_is_acknowledged"
MUTANTS: dict[str, tuple[str, Members]] = {
    "order_twice_in_the_lis": (ONCE, {"submit": submit_twice}),
    "order_visible_when_prepared": (PREPARED, {"prepare": lambda adapter, order: adapter.submit(order)}),
    "order_said_to_be_missing": (ONCE, {"was_received": returning(False)}),
    "order_said_to_be_there": (PREPARED, {"was_received": returning(True)}),
    "order_denied_when_nobody_answers": ("test_an_unreachable_lis_is_not_said_to_lack_the_order", {"was_received": deny}),
    "acknowledged_before_stored": ("test_nothing_is_acknowledged_before_it_is_stored", {"_take": acknowledge_first}),
    "named_by_content": (
        "test_a_value_that_was_corrected_there_and_back_is_three_messages",
        taking(name=lambda _, raw: hashlib.sha256(raw).hexdigest()),
    ),
    "named_at_random": (
        "test_a_crash_before_the_acknowledgement_makes_no_second_message",
        taking(name=lambda *_: secrets.token_hex(8)),
    ),
    "digits_as_floats": (DIGITS, taking(read=lambda raw: load_message(json.dumps(json.loads(raw)).encode()))),
    "bad_result_deleted": (BAD, taking_bad("taken")),
    "bad_result_not_told": (BAD, taking_bad(tell=False)),
    "bad_result_told_for_ever": (BAD, taking_bad("", name=lambda number: f"{number}-{secrets.token_hex(4)}")),
    "raw_message_left_out": (BAD, taking_bad(raw=False)),
    "bad_result_stops_the_others": ("test_a_bad_result_stops_no_good_one", taking()),  # what cannot be read ends collect
    "first_line_cancelled_alone": (
        "test_a_withdrawal_names_every_line",
        {"cancel": lambda adapter, order, lines, reason: good(adapter).cancel(order, lines[:1], reason)},
    ),
    "withdrawal_lost": (LOST, {"cancel": lose_withdrawal}),
    "withdrawal_rejected": (LOST, failing("cancel", LisUnavailable, LisRejected("away"))),
    "unreachable_told_as_unknown": (
        "test_an_unreachable_lis_is_tried_again_later",
        failing("submit", LisUnavailable, LisOutcomeUnknown("away")),
    ),
    "unknown_told_as_unreachable": (
        "test_a_lost_answer_is_an_unknown_outcome",
        failing("submit", LisOutcomeUnknown, LisUnavailable("no answer")),
    ),
    "refusal_told_as_unreachable": ("test_a_refusal_is_final", failing("submit", LisRejected, LisUnavailable("422"))),
    "busy_told_as_rejection": (BUSY, failing("submit", LisUnavailable, LisRejected("429"))),
    "wait_not_handed_on": (BUSY, failing("submit", LisUnavailable, LisUnavailable("429"))),
    "check_that_says_nothing": ("test_check_says_that_the_lis_is_unreachable", {"check": returning(None)}),
    "start_that_never_ends_an_outage": ("test_an_adapter_starts_again_after_it_could_not", {"start": start_once}),
    "loop_blocked_for_a_second": (DIGITS, {"collect": block}),
    "loop_blocked_while_the_lis_is_slow": ("test_a_slow_lis_blocks_nobody_else", {"_send": send_blocking}),
}
"""Every mutant: the test of the suite that has to fail for it, and its fault."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The modules of a project made of the template: the adapter's and the test's."""
    folder = tmp_path_factory.mktemp("project")
    create_project("mutant-lis", folder)
    paths = [str(folder / "mutant-lis"), str(folder / "mutant-lis" / "tests")]
    sys.path[:0] = paths
    yield importlib.import_module("lab_adapter_mutant_lis"), importlib.import_module("test_lab_adapter_mutant_lis")
    for path in paths:
        sys.path.remove(path)
    for name in ("lab_adapter_mutant_lis", "test_lab_adapter_mutant_lis", "fake_lis"):
        sys.modules.pop(name, None)


def make_suite(project: Any, members: Members) -> AdapterContract:
    adapters, tests = project
    mutant = type("MutantLisAdapter", (adapters.MutantLisAdapter,), members)

    class MutantBench(tests.MutantLisBench):  # type: ignore[misc,name-defined]
        def adapter(self) -> Any:
            return mutant(mutant.Settings(url=f"http://127.0.0.1:{self.lis.port}", timeout=5), "mutant-lis")

    class Suite(AdapterContract):
        async def bench(self, folder: Path) -> Any:
            return MutantBench()

    return Suite()


@pytest.mark.slow
@pytest.mark.parametrize("fault", MUTANTS)
def test_contract_suite_catches(fault: str, project: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_runs, "TIMEOUT_SECONDS", 0.5)
    caught_by, members = MUTANTS[fault]
    getattr(make_suite(project, {}), caught_by)(tmp_path)
    with pytest.raises((AssertionError, TimeoutError, RuntimeError, Failure)) as caught:
        getattr(make_suite(project, members), caught_by)(tmp_path)
    assert caught.value.__notes__[0].startswith("The contract: ")
    if isinstance(caught.value, AssertionError | TimeoutError):
        assert re.search(r"\bexpected .*\bcame .", str(caught.value))


REPORT = make_report(1, make_order(1))


@pytest.mark.parametrize(
    ("came", "expected", "said"),
    [
        (["a"], ["a", "b"], "orders: expected ['a', 'b'], came ['a']"),
        ([Decimal("1.2")], [Decimal("1.20")], "orders: [0]: expected Decimal('1.20'), came Decimal('1.2')"),
        ([replace(REPORT, report_id="X")], [REPORT], f"orders: [0].report_id: expected {REPORT.report_id!r}, came 'X'"),
    ],
)
def test_difference_names_place_expected_and_came(came: object, expected: object, said: str) -> None:
    with pytest.raises(AssertionError) as caught:
        bench_runs.expect("orders", came, expected)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("status", "retry_after", "told", "wait"),
    [
        (429, "7", LisUnavailable, 7.0),
        (503, "Wed, 21 Oct 2015 07:28:00 GMT", LisUnavailable, 0.0),
        (503, "soon", LisUnavailable, None),
        *((status, None, LisUnavailable, None) for status in (429, 401, 307)),
        *((status, None, LisRejected, None) for status in (400, 422)),
        *((status, None, LisOutcomeUnknown, None) for status in (500, 502)),
    ],
)
def test_template_tells_answers_apart(
    project: Any, status: int, retry_after: str | None, told: type[Failure], wait: float | None
) -> None:
    failure = project[0].to_failure(httpx.Response(status, headers={"Retry-After": retry_after} if retry_after else {}))
    assert type(failure) is told
    assert getattr(failure, "retry_after", None) == wait


def test_template_reads_raw_messages_again(project: Any) -> None:
    adapter = project[0].MutantLisAdapter(project[0].MutantLisAdapter.Settings(url="http://127.0.0.1:9"), "lis")
    (good,) = asyncio.run(adapter.parse_message(dump_message(REPORT), "result-1")).parts
    assert (good.message_id, good.content, good.problem) == ("result-1", REPORT, None)
    (bad,) = asyncio.run(adapter.parse_message(b"{}", "result-2")).parts
    assert (bad.content, bool(bad.problem)) == (None, True)
