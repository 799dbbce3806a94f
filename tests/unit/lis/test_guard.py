"""The guard: every call has an end, only three failures leave it, and one adapter is not felt by another."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel
from structlog.testing import capture_logs

from lab_agent.lis.guard import GuardedAdapter
from lab_agent.lis.lab_messages import Document
from lab_agent.lis.laboratory_system import Inbox, ParsedMessage, ParsedPart, SubmitResult
from lab_agent.lis.testing import MemoryInbox, make_order, make_report
from lab_agent.shared.errors import DataInvalidError, LisOutcomeUnknown, LisRejected, LisUnavailable
from lab_agent.shared.ids import OrderKey
from tests.harness.clock import DEADLINE, wait_until

ORDER = make_order(1)


NORMAL: dict[str, Any] = {"submit": SubmitResult(), "was_received": False, "collect": 0} | dict.fromkeys(
    ("stop", "check", "prepare", "cancel")
)


class Odd:
    """An adapter whose calls do what the test wants of them; without that, they work."""

    Settings: ClassVar[type[BaseModel]] = BaseModel
    idempotent: ClassVar[bool] = False

    def __init__(self, **behaviours: Any) -> None:
        self.behaviours = behaviours
        self.calls: list[str] = []
        self.inbox: Inbox | None = None

    def __getattr__(self, call: str) -> Any:
        if call not in NORMAL:
            raise AttributeError(call)
        return lambda *_: self._do(call, NORMAL[call])

    async def _do(self, call: str, normal: Any = None) -> Any:
        self.calls.append(call)
        behaviour = self.behaviours.get(call, normal)
        if isinstance(behaviour, BaseException):
            raise behaviour
        return await behaviour() if callable(behaviour) else behaviour

    async def start(self, inbox: Inbox) -> None:
        self.inbox = inbox
        await self._do("start")


async def guard(odd: Odd, *, seconds: float = 5.0) -> GuardedAdapter:
    made = GuardedAdapter(odd, "odd", timeout=seconds)
    await made.start(MemoryInbox())
    return made


def calls(guarded: GuardedAdapter) -> dict[str, Callable[[], Awaitable[Any]]]:
    return {
        "check": guarded.check,
        "prepare": lambda: guarded.prepare(ORDER),
        "submit": lambda: guarded.submit(ORDER),
        "was_received": lambda: guarded.was_received(ORDER.key),
        "cancel": lambda: guarded.cancel(ORDER.key, (), "x"),
        "collect": guarded.collect,
    }


OTHERS = [ValueError("secret"), KeyError("x"), OSError(5, "x"), SystemExit(3), asyncio.CancelledError()]


async def forever() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("call", [call for call in NORMAL if call != "stop"])
async def test_guard_passes_three_lis_errors_and_translates_others(call: str) -> None:
    """Also a call that does not end is one."""
    for failure in (LisUnavailable("away"), LisRejected("no"), LisOutcomeUnknown("hm")):
        guarded = await guard(Odd(**{call: failure}))
        with pytest.raises(type(failure), match=str(failure)):
            await calls(guarded)[call]()
    expected = LisOutcomeUnknown if call == "submit" else LisUnavailable
    for error in OTHERS:
        guarded = await guard(Odd(**{call: error}))
        with pytest.raises(expected, match=f"{call} of the adapter odd failed with") as caught:
            await calls(guarded)[call]()
        assert "secret" not in str(caught.value)
    guarded = await guard(Odd(**{call: forever}), seconds=0.02)
    with pytest.raises(expected, match=f"{call} of the adapter odd timed out"):
        await calls(guarded)[call]()


INVALID_RECEIPTS: tuple[Any, ...] = (
    *(None, "77", SubmitResult(accession=77), SubmitResult(accession=" "), SubmitResult(accession="7" * 300)),  # type: ignore[arg-type]
    *(SubmitResult(line_accessions={"L": None}), SubmitResult(line_accessions=None)),  # type: ignore[arg-type, dict-item]
    *(SubmitResult(unnamed_lines=None), SubmitResult(unnamed_lines=("a\nb",))),  # type: ignore[arg-type]
)


@pytest.mark.parametrize(
    ("call", "answer", "expected"),
    [
        *(("submit", answer, LisOutcomeUnknown) for answer in INVALID_RECEIPTS),
        *(("was_received", answer, LisUnavailable) for answer in ("yes", 1)),
        *(("collect", answer, LisUnavailable) for answer in (None, -1, True)),
    ],
)
async def test_guard_rejects_invalid_return_values(call: str, answer: Any, expected: type[Exception]) -> None:
    guarded = await guard(Odd(**{call: answer}))
    with pytest.raises(expected, match=f"{call} of the adapter odd returned"):
        await calls(guarded)[call]()


async def test_guard_abandoned_submit_blocks_calls_for_order() -> None:
    """While a timed-out submit still runs, every other call about that order is rejected as busy."""
    release = asyncio.Event()

    async def deaf() -> SubmitResult:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return SubmitResult()

    odd = Odd(submit=deaf)
    guarded = await guard(odd, seconds=0.02)
    with pytest.raises(LisOutcomeUnknown):
        await guarded.submit(ORDER)
    for call in ("was_received", "submit", "prepare", "cancel"):
        with pytest.raises(LisUnavailable, match="still busy"):
            await calls(guarded)[call]()
    assert await guarded.was_received(OrderKey("ANOTHER")) is False
    release.set()
    await wait_until(lambda: not guarded._abandoned)
    assert await guarded.was_received(ORDER.key) is False


async def test_guard_slow_adapter_does_not_stall_another() -> None:
    """Nor does a thread that hangs."""
    slow, quick = await guard(Odd(collect=forever), seconds=60), await guard(Odd(collect=1))
    waiting = asyncio.ensure_future(slow.collect())
    assert await asyncio.wait_for(quick.collect(), DEADLINE) == 1
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await wait_until(lambda: not slow._abandoned)
    release = threading.Event()
    guarded = await guard(Odd(collect=lambda: asyncio.to_thread(release.wait, 30)), seconds=0.02)
    with pytest.raises(LisUnavailable):
        await guarded.collect()
    release.set()


async def test_guard_retries_start_after_lis_unavailable() -> None:
    """Before any start, nothing but a check is passed on."""
    odd = Odd(start=LisUnavailable("away"), collect=2)
    guarded = GuardedAdapter(odd, "odd", timeout=5)
    await guarded.check()
    with pytest.raises(LisUnavailable, match="was not started"):
        await guarded.collect()
    assert odd.calls == ["check"]
    with pytest.raises(LisUnavailable, match="away"):
        await guarded.start(MemoryInbox())
    with pytest.raises(LisUnavailable, match="away"):
        await guarded.collect()
    del odd.behaviours["start"]
    assert [await guarded.collect() for _ in range(2)] == [2, 2]
    assert odd.calls.count("start") == 3


async def test_guard_hanging_start_counts_against_call_timeout() -> None:
    odd = Odd(start=forever)
    guarded = GuardedAdapter(odd, "odd", timeout=0.02)
    with pytest.raises(LisUnavailable, match="timed out"):
        await guarded.start(MemoryInbox())
    await wait_until(lambda: not guarded._abandoned)
    with pytest.raises(LisUnavailable, match="did not start within"):
        await guarded.submit(ORDER)
    assert "submit" not in odd.calls


async def test_guard_reports_every_call_and_logs_failure_and_recovery_once() -> None:
    output: list[tuple[str, str]] = []
    odd = Odd(collect=ValueError("x"), submit=LisRejected("no"), check=forever, stop=ValueError("x"))
    guarded = GuardedAdapter(odd, "odd", timeout=0.3, on_call=lambda call, outcome, _: output.append((call, outcome)))
    await guarded.start(MemoryInbox())
    with capture_logs() as lines:
        for _ in range(3):
            with pytest.raises(LisUnavailable):
                await guarded.collect()
        odd.behaviours["collect"] = 0
        await guarded.collect()
        await guarded.collect()
    assert [(line["action"], line["adapter"]) for line in lines] == [("adapter_failed", "odd"), ("adapter_recovered", "odd")]
    with pytest.raises(LisRejected):
        await guarded.submit(ORDER)
    with pytest.raises(LisUnavailable):
        await guarded.check()
    told = [("start", "ok"), *[("collect", "unavailable")] * 3, *[("collect", "ok")] * 2, ("submit", "rejected")]
    assert output == [*told, ("check", "unavailable")]
    with capture_logs() as lines:
        await guarded.stop()
    assert {line["action"] for line in lines} >= {"adapter_stop_failed"}


async def test_guard_validates_message_before_inbox() -> None:
    odd, inside, report = Odd(), MemoryInbox(), make_report(1, ORDER)
    await GuardedAdapter(odd, "odd", timeout=5).start(inside)
    inbox = odd.inbox
    assert inbox is not None
    bad: list[tuple[Any, Any, str]] = [
        ("m", {"report_id": "1"}, "document: is a dict"),
        ("m", replace(report, order=None, lines=()), "document: names no order"),
        ("m", replace(report, documents=(Document(file="a.pdf"),)), r"documents\[0\]\.file: was not read"),
        ("m", replace(report, status="done"), "status: unknown value"),  # type: ignore[arg-type]
        (" ", report, "message_id: "),
        ("m\0", report, "message_id: "),
        (7, report, "message_id: "),
    ]
    for message, content, sentence in bad:
        with pytest.raises(DataInvalidError, match=sentence):
            await inbox.accept(message, content)
    assert not inside.messages
    assert await inbox.accept("m", report)
    assert not await inbox.accept("m", report)
    assert await inbox.was_accepted("m")
    assert inside.contents == [report]


async def test_guard_burst_of_results_is_no_timeout() -> None:
    """A collection that goes on taking messages is alive, however long it takes; one that takes none is not."""

    async def collect() -> int:
        assert odd.inbox is not None
        for number in range(8):
            await asyncio.sleep(0.15)
            await odd.inbox.accept(f"m{number}", make_report(number, ORDER))
        return 8

    odd = Odd(collect=collect)
    assert await (await guard(odd, seconds=1.0)).collect() == 8
    odd.behaviours["collect"] = asyncio.Event().wait
    with pytest.raises(LisUnavailable, match="timed out"):
        await (await guard(odd, seconds=0.05)).collect()


class Parsing(Odd):
    async def parse_message(self, raw: bytes, name: str) -> Any:
        return await self._do("parse_message", ParsedMessage(parts=(ParsedPart(message_id=name, problem=raw.decode()),)))


async def parsed(odd: Odd, seconds: float = 5) -> list[tuple[bool, str]]:
    read = await GuardedAdapter(odd, "odd", timeout=seconds).parse_message(b"as read", "m")
    return [(part.content is not None, str(part.problem)) for part in read.parts]


async def test_parsed_parts_are_checked_as_by_the_inbox() -> None:
    report = make_report(1, ORDER)
    given = {"m/1": report, "m/2": replace(report, order=None, lines=()), "m\0": report}
    parts = tuple(ParsedPart(message_id=name, content=content) for name, content in given.items())
    found = await parsed(Parsing(parse_message=ParsedMessage(parts=parts)))
    assert [has_content for has_content, _ in found] == [True, False, False]
    assert "names no order" in found[1][1]


@pytest.mark.parametrize(
    "behaviour", [forever, KeyError("secret"), LisUnavailable("gone"), [], ParsedMessage(parts=("x",)), None]
)  # type: ignore[arg-type]
async def test_failing_parse_is_one_part_with_problem(behaviour: Any) -> None:
    """Also of an adapter that cannot read raw messages at all."""
    odd = Odd() if behaviour is None else Parsing(parse_message=behaviour)
    assert GuardedAdapter(odd, "odd", timeout=5).can_parse is (behaviour is not None)
    ((has_content, problem),) = await parsed(odd, seconds=0.05)
    assert not has_content
    assert problem != "None"
    assert "secret" not in problem
    assert ("cannot read" in problem) or behaviour is not None
