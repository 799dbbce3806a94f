"""The contract suite notices every fault that an adapter may have: each of these is the template's adapter with one fault.

That the adapter without a fault passes is shown by `test_adapter_template`.
"""

import ast
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

from lab_agent.errors import DataInvalidError, Failure, LisOutcomeUnknown, LisRejected, LisUnavailable
from lab_agent.lis import testing
from lab_agent.lis.adapter_template import create_project
from lab_agent.lis.contract import dump_message, dump_order, load_message
from lab_agent.lis.testing import AdapterContract, bench_runs, make_order, make_report
from lab_agent.ports.lis import RawMessageParser

Members = dict[str, Any]
"""What of a class is replaced."""


def returning(answer: object) -> Any:
    async def call(*_: Any) -> object:
        return answer

    return call


def failing(method: Any, told: type[Failure], instead: Failure) -> Any:
    async def call(adapter: Any, *args: Any) -> Any:
        try:
            return await method(adapter, *args)
        except told:
            raise instead from None

    return call


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
            new = await adapter._inbox.accept(f"result-{number}", load_message(body))
        except DataInvalidError as error:
            if tell:
                await adapter._inbox.reject(name(number), str(error.problems[0]), raw=body if raw else None)
            if then:
                await adapter._ask("PUT", f"results/{number}/{then}")
            return 0
        await adapter._ask("PUT", f"results/{number}/taken")
        return int(new)

    return {"_take": take}


def make_mutants(good: Any) -> dict[str, Members]:
    """For each mutant the members that differ from those of the good adapter, whose class is `good`."""

    async def submit_twice(adapter: Any, order: Any) -> Any:
        await adapter._send("PUT", f"orders/{order.key}-{secrets.token_hex(2)}", dump_order(order))
        return await good.submit(adapter, order)

    async def deny(adapter: Any, key: str) -> bool:
        with suppress(Failure):
            return bool(await good.was_received(adapter, key))
        return False

    async def acknowledge_first(adapter: Any, number: str) -> int:
        raw = (await adapter._ask("GET", f"results/{number}")).content
        await adapter._ask("PUT", f"results/{number}/taken")
        return int(await adapter._inbox.accept(f"result-{number}", load_message(raw)))

    async def lose_withdrawal(adapter: Any, *args: Any) -> None:
        with suppress(Failure):
            await good.cancel(adapter, *args)

    async def start_once(adapter: Any, inbox: Any) -> None:
        try:
            await adapter._ask("GET", "health")
        except LisUnavailable:
            raise RuntimeError("away") from None
        await good.start(adapter, inbox)

    async def block(adapter: Any) -> int:
        time.sleep(1)  # noqa: ASYNC251 — the fault
        return int(await good.collect(adapter))

    async def send_blocking(adapter: Any, method: str, path: str, content: Any = None, **options: Any) -> Any:
        async def once() -> Any:
            other = type(adapter)(adapter._settings, "other")
            try:
                return await good._send(other, method, path, content, **options)
            finally:
                await other.stop()

        with ThreadPoolExecutor(1) as threads:
            return threads.submit(lambda: asyncio.run(once())).result()  # waits in the event loop: the fault

    return {
        "order_twice_in_the_lis": {"submit": submit_twice},
        "order_visible_when_prepared": {"prepare": good.submit},
        "order_said_to_be_missing": {"was_received": returning(False)},
        "order_said_to_be_there": {"was_received": returning(True)},
        "order_denied_when_nobody_answers": {"was_received": deny},
        "acknowledged_before_stored": {"_take": acknowledge_first},
        "named_by_content": taking(name=lambda _, raw: hashlib.sha256(raw).hexdigest()),
        "named_at_random": taking(name=lambda *_: secrets.token_hex(8)),
        "digits_as_floats": taking(read=lambda raw: load_message(json.dumps(json.loads(raw)).encode())),
        "bad_result_stops_the_others": taking(),  # what cannot be read raises, and collect ends
        "bad_result_deleted": taking_bad("taken"),
        "bad_result_not_told": taking_bad(tell=False),
        "bad_result_told_for_ever": taking_bad("", name=lambda number: f"{number}-{secrets.token_hex(4)}"),
        "raw_message_left_out": taking_bad(raw=False),
        "first_line_cancelled_alone": {
            "cancel": lambda adapter, order, lines, reason: good.cancel(adapter, order, lines[:1], reason)
        },
        "withdrawal_lost": {"cancel": lose_withdrawal},
        "withdrawal_rejected": {"cancel": failing(good.cancel, LisUnavailable, LisRejected("away"))},
        "unreachable_told_as_unknown": {"submit": failing(good.submit, LisUnavailable, LisOutcomeUnknown("away"))},
        "unknown_told_as_unreachable": {"submit": failing(good.submit, LisOutcomeUnknown, LisUnavailable("no answer"))},
        "refusal_told_as_unreachable": {"submit": failing(good.submit, LisRejected, LisUnavailable("422"))},
        "busy_told_as_rejection": {"submit": failing(good.submit, LisUnavailable, LisRejected("429"))},
        "wait_not_handed_on": {"submit": failing(good.submit, LisUnavailable, LisUnavailable("429"))},
        "check_that_says_nothing": {"check": returning(None)},
        "start_that_never_ends_an_outage": {"start": start_once},
        "loop_blocked_for_a_second": {"collect": block},
        "loop_blocked_while_the_lis_is_slow": {"_send": send_blocking},
    }


CAUGHT_BY = {
    "order_twice_in_the_lis": "test_orders_arrive_once_each",
    "order_visible_when_prepared": "test_a_prepared_order_is_not_seen_by_the_lis",
    "order_said_to_be_missing": "test_orders_arrive_once_each",
    "order_said_to_be_there": "test_a_prepared_order_is_not_seen_by_the_lis",
    "order_denied_when_nobody_answers": "test_an_unreachable_lis_is_not_said_to_lack_the_order",
    "acknowledged_before_stored": "test_nothing_is_acknowledged_before_it_is_stored",
    "named_by_content": "test_a_value_that_was_corrected_there_and_back_is_three_messages",
    "named_at_random": "test_a_crash_before_the_acknowledgement_makes_no_second_message",
    "digits_as_floats": "test_a_report_arrives_digit_for_digit_and_is_acknowledged",
    "bad_result_deleted": "test_a_bad_result_is_told_and_kept",
    "bad_result_not_told": "test_a_bad_result_is_told_and_kept",
    "bad_result_told_for_ever": "test_a_bad_result_is_told_and_kept",
    "raw_message_left_out": "test_a_bad_result_is_told_and_kept",
    "bad_result_stops_the_others": "test_a_bad_result_stops_no_good_one",
    "first_line_cancelled_alone": "test_a_withdrawal_names_every_line",
    "withdrawal_lost": "test_a_withdrawal_is_not_lost_while_the_lis_is_unreachable",
    "withdrawal_rejected": "test_a_withdrawal_is_not_lost_while_the_lis_is_unreachable",
    "unreachable_told_as_unknown": "test_an_unreachable_lis_is_tried_again_later",
    "unknown_told_as_unreachable": "test_a_lost_answer_is_an_unknown_outcome",
    "refusal_told_as_unreachable": "test_a_refusal_is_final",
    "busy_told_as_rejection": "test_a_busy_lis_is_tried_again_when_it_asks_to",
    "wait_not_handed_on": "test_a_busy_lis_is_tried_again_when_it_asks_to",
    "check_that_says_nothing": "test_check_says_that_the_lis_is_unreachable",
    "start_that_never_ends_an_outage": "test_an_adapter_starts_again_after_it_could_not",
    "loop_blocked_for_a_second": "test_a_report_arrives_digit_for_digit_and_is_acknowledged",
    "loop_blocked_while_the_lis_is_slow": "test_a_slow_lis_blocks_nobody_else",
}
"""Every mutant, and the test of the suite that has to fail for it."""


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


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_runs, "TIMEOUT_SECONDS", 0.5)


def make_suite(project: Any, members: dict[str, Any]) -> AdapterContract:
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
@pytest.mark.parametrize("fault", CAUGHT_BY)
def test_contract_suite_catches(fault: str, project: Any, tmp_path: Path) -> None:
    suite = make_suite(project, make_mutants(project[0].MutantLisAdapter)[fault])
    with pytest.raises((AssertionError, TimeoutError, RuntimeError, Failure)) as caught:
        getattr(suite, CAUGHT_BY[fault])(tmp_path)
    assert caught.value.__notes__[0].startswith("The contract: ")
    if isinstance(caught.value, AssertionError | TimeoutError):
        assert re.search(r"\bexpected .*\bcame .", str(caught.value))


def test_suite_asserts_nothing_without_words() -> None:
    """pytest does not explain an assert of an installed package."""
    for module in Path(testing.__file__).parent.glob("*.py"):
        assert not [each for each in ast.walk(ast.parse(module.read_text())) if isinstance(each, ast.Assert)], module


REPORT = make_report(1, make_order(1))


@pytest.mark.parametrize(
    ("came", "expected", "said"),
    [
        (["a"], ["a", "b"], "orders: expected ['a', 'b'], came ['a']"),
        (["a", "c"], ["a", "b"], "orders: [1]: expected 'b', came 'c'"),
        ([Decimal("1.2")], [Decimal("1.20")], "orders: [0]: expected Decimal('1.20'), came Decimal('1.2')"),
        ([replace(REPORT, report_id="X")], [REPORT], f"orders: [0].report_id: expected {REPORT.report_id!r}, came 'X'"),
        (None, [], "orders: expected [], came None"),
        ([*range(7)], [*range(1, 8)], "orders: [0]: expected 1, came 0; "),
    ],
)
def test_difference_names_place_expected_and_came(came: object, expected: object, said: str) -> None:
    with pytest.raises(AssertionError) as caught:
        bench_runs.expect("orders", came, expected)
    assert str(caught.value).startswith(said)
    assert str(caught.value) == said or str(caught.value).endswith("; 2 more")
    bench_runs.expect("orders", expected, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(CAUGHT_BY.values())))
def test_contract_suite_passes_the_good_one(name: str, project: Any, tmp_path: Path) -> None:
    """Within the same patience: a mutant fails for its fault alone."""
    getattr(make_suite(project, {}), name)(tmp_path)


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
    assert isinstance(adapter, RawMessageParser)
    report = make_report(1, make_order(1))
    (good,) = asyncio.run(adapter.parse_message(dump_message(report), "result-1")).parts
    assert (good.message_id, good.content, good.problem) == ("result-1", report, None)
    (bad,) = asyncio.run(adapter.parse_message(b"{}", "result-2")).parts
    assert bad.content is None
    assert bad.problem
