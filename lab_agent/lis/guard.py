"""Stands between the agent and an adapter: foreign code may be slow, wrong or broken, and nobody else is to feel it.

Every call has an end in time; what comes back is looked at; of all that may be raised only the three failures of the contract
leave this module. A call that does not end when it is told to is left behind, watched, and as long as it lives no other
call about the same order is made: nobody could say what it might still do.

What an adapter may answer. A wrong answer to `submit` leaves the outcome unknown; elsewhere it is as good as no answer.

The inbox as an adapter gets it: what the adapter made is held against the rules before it comes near the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.lab_messages import AccessionUpdate, Document, LabMessage, LabRejection, LabReport
from lab_agent.domain.lab_order import LabOrder
from lab_agent.errors import DataInvalidError, Failure, LisOutcomeUnknown, LisRefusal, LisUnavailable, Problem, StoreError
from lab_agent.metrics import CallObserver, ignore, measure_call
from lab_agent.ports.lis import Inbox, LisAdapter, SubmitResult
from lab_agent.serialization import validate_message

log = structlog.get_logger(__name__)

_MAX_ACCESSION_LENGTH = 200


def discard_result(value: object) -> None:
    """Take an answer that nobody needs."""


def check_submit_result(value: Any, adapter: str) -> SubmitResult:
    """Look at a receipt. Raises `LisOutcomeUnknown`: the order may well be in the LIS."""
    if not isinstance(value, SubmitResult):
        raise LisOutcomeUnknown(f"the adapter {adapter} answered submit with {type(value).__name__}, and not with a Receipt")
    whole = value.accession is None or _is_accession(value.accession)
    if not (whole and _are_accessions(value.line_accessions) and _are_accessions(value.tube_accessions)):
        raise LisOutcomeUnknown(f"the adapter {adapter} answered submit with a Receipt whose accessions are not short text")
    return value


def check_was_received(value: Any, adapter: str) -> bool | None:
    """Look at the answer of `was_received`. Raises `LisUnavailable`."""
    if value is None or isinstance(value, bool):
        return value
    raise LisUnavailable(f"the adapter {adapter} answered was_received with {type(value).__name__}, and not True, False or None")


def check_message_count(value: Any, adapter: str) -> int:
    """Look at the answer of `collect`. Raises `LisUnavailable`."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise LisUnavailable(f"the adapter {adapter} answered collect with {type(value).__name__}, and not with a number of messages")


def _are_accessions(given: Any) -> bool:
    return isinstance(given, Mapping) and all(isinstance(key, str) and _is_accession(value) for key, value in given.items())


def _is_accession(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value.strip()) <= _MAX_ACCESSION_LENGTH and value.isprintable()


_MAX_MESSAGE_NAME_LENGTH = 1000
_MAX_REASON_LENGTH = 2000


@dataclass(frozen=True, slots=True)
class GuardedInbox:
    """An `Inbox` around the inbox. `accept` raises `DataInvalidError`, naming every bad field."""

    inbox: Inbox
    adapter: str

    async def accept(self, message: str, content: LabMessage) -> bool:
        """Keep a report or a refusal; False if it was kept before."""
        checked = await asyncio.to_thread(_validate_message, message, content)
        return await self.inbox.accept(message, checked)

    async def was_accepted(self, message: str) -> bool:
        """Whether a message of that name was kept before."""
        return await self.inbox.was_accepted(message)

    async def refused(self, message: str, reason: str) -> None:
        """Hear that a message was refused."""
        await self.inbox.refused(str(message)[:_MAX_MESSAGE_NAME_LENGTH], str(reason)[:_MAX_REASON_LENGTH])


def _validate_message(message: object, content: object) -> LabMessage:
    if not isinstance(content, LabReport | LabRejection | AccessionUpdate):
        mend = "give a LabReport, a LabRefusal or a LabReceipt"
        raise DataInvalidError((Problem("document", f"is a {type(content).__name__}", mend),))
    problems = [*_name_problems(message), *_unread_document_problems(content)]
    if problems:
        raise DataInvalidError(tuple(problems))
    return validate_message(content)


def _name_problems(message: object) -> Iterator[Problem]:
    if not isinstance(message, str) or not message.strip() or len(message) > _MAX_MESSAGE_NAME_LENGTH or "\0" in message:
        mend = f"give the message a stable name of its own, up to {_MAX_MESSAGE_NAME_LENGTH} characters"
        yield Problem("message", "is no name", mend)


def _unread_document_problems(content: LabMessage) -> Iterator[Problem]:
    """Documents must be there in full: beyond this point a file name means a place in our own store, and nothing else."""
    for where, document in _documents(content):
        if document.file is not None:
            yield Problem(f"{where}.file", "was not read", "read the file, and give its bytes as content")


def _documents(content: LabMessage) -> Iterator[tuple[str, Document]]:
    if isinstance(content, LabReport):
        yield from ((f"documents[{index}]", document) for index, document in enumerate(content.documents))
        for index, observation in enumerate(content.observations):
            if observation.value_attachment is not None:
                yield f"observations[{index}].value_attachment", observation.value_attachment


T = TypeVar("T")
_STOP_GRACE_SECONDS = 5.0


class GuardedAdapter:
    """A `Lis`: an adapter behind its guard. `timeout` is the seconds that a call may take; `heard` hears of every call.

    Once `start` was asked for and the LIS was away, each later call tries to start first, so that it recovers by itself.
    """

    def __init__(self, adapter: LisAdapter, name: str, *, timeout: float, on_call: CallObserver = ignore) -> None:
        self._adapter = adapter
        self._name = name
        self._timeout = timeout
        self._on_call = on_call
        self._inbox: GuardedInbox | None = None
        self._started = False
        self._start_lock = asyncio.Lock()
        self._abandoned: dict[asyncio.Task[Any], str] = {}
        self._failing_calls: set[str] = set()

    @property
    def idempotent(self) -> bool:
        """Whether `submit` may be repeated."""
        return self._adapter.idempotent

    async def start(self, inbox: Inbox) -> None:
        """Begin; where that fails, the next call tries again. Raises `LisUnavailable`."""
        self._inbox = GuardedInbox(inbox, self._name)
        await self._ensure_started()

    async def stop(self) -> None:
        """End. What the adapter raises at its end is logged and goes no further."""
        started, self._started, self._inbox = self._started, False, None
        try:
            if started:
                await self._call("stop", self._adapter.stop())
        except Failure as failure:
            log.warning("adapter did not stop cleanly", action="adapter_stop_failed", adapter=self._name, error=failure)
        for task in self._abandoned:
            task.cancel()
        if self._abandoned:
            await asyncio.wait(list(self._abandoned), timeout=min(self._timeout, _STOP_GRACE_SECONDS))

    async def check(self) -> None:
        """Ask for a sign of life; works without a start."""
        discard_result(await self._call("check", self._adapter.check()))

    async def prepare(self, order: LabOrder) -> None:
        """Prepare the order."""
        end = await self._ensure_ready(order.key)
        await self._call("prepare", self._adapter.prepare(order), key=order.key, deadline=end)

    async def submit(self, order: LabOrder) -> SubmitResult:
        """Hand the order over. What is not one of the three failures leaves the outcome unknown."""
        end = await self._ensure_ready(order.key)
        given = await self._call(
            "submit", self._adapter.submit(order), key=order.key, deadline=end, default_error=LisOutcomeUnknown
        )
        return check_submit_result(given, self._name)

    async def was_received(self, key: OrderKey) -> bool | None:
        """Ask whether the LIS has the order."""
        end = await self._ensure_ready(key)
        given = await self._call("was_received", self._adapter.was_received(key), key=key, deadline=end)
        return check_was_received(given, self._name)

    async def cancel(self, order: OrderKey, lines: tuple[LineKey, ...], reason: str) -> None:
        """Tell of a withdrawal."""
        end = await self._ensure_ready(order)
        await self._call("cancel", self._adapter.cancel(order, lines, reason), key=order, deadline=end)

    async def collect(self) -> int:
        """Take what is there."""
        end = await self._ensure_ready("collect")
        return check_message_count(await self._call("collect", self._adapter.collect(), key="collect", deadline=end), self._name)

    async def _ensure_ready(self, key: str) -> float:
        """Start where that is still to be done; gives the loop's time at which the call has to end, the start included.

        The whole must end within `timeout`: the agent's claim on an order outlasts that, and no more.
        """
        end = self._deadline()
        if key in self._abandoned.values():
            raise LisUnavailable(f"the adapter {self._name} is still busy with an earlier call that did not end in time")
        try:
            async with asyncio.timeout_at(end):
                await self._ensure_started()
        except TimeoutError as exc:
            raise LisUnavailable(f"the adapter {self._name} did not start within {self._timeout:g} seconds") from exc
        return end

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._timeout

    async def _ensure_started(self) -> None:
        async with self._start_lock:
            if self._started:
                return
            if self._inbox is None:
                raise LisUnavailable(f"the adapter {self._name} was not started")
            if "start" in self._abandoned.values():
                raise LisUnavailable(f"the adapter {self._name} is still starting")
            await self._call("start", self._adapter.start(self._inbox), key="start")
            self._started = True

    async def _call(
        self,
        call: str,
        work: Coroutine[Any, Any, T],
        *,
        key: str = "",
        deadline: float | None = None,
        default_error: type[Failure] = LisUnavailable,
    ) -> T:
        with measure_call(call, self._on_call):
            return await self._run_until_deadline(
                call, work, key=key, deadline=self._deadline() if deadline is None else deadline, default_error=default_error
            )

    async def _run_until_deadline(
        self, call: str, work: Coroutine[Any, Any, T], *, key: str, deadline: float, default_error: type[Failure]
    ) -> T:
        task = asyncio.ensure_future(_convert_system_exit(work))
        task.set_name(f"lis:{self._name}:{call}")
        try:
            now = asyncio.get_running_loop().time()
            await asyncio.wait({task}, timeout=max(0.0, deadline - now))
        finally:
            if not task.done():
                self._abandon(task, key)
        if not task.done():
            self._log_failure(call, None)
            raise default_error(f"the adapter {self._name} did not end {call} within {self._timeout:g} seconds")
        return self._outcome(call, task, default_error)

    def _outcome(self, call: str, task: asyncio.Future[T], default_error: type[Failure]) -> T:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            self._log_recovery(call)
            return task.result()
        if isinstance(error, LisUnavailable | LisRefusal | LisOutcomeUnknown | StoreError):
            raise error  # a fault of our own store, behind the inbox, is not the laboratory's
        self._log_failure(call, error)
        raise default_error(f"the adapter {self._name} broke off {call} with {type(error).__name__}") from error

    def _abandon(self, task: asyncio.Task[Any], key: str) -> None:
        """Tell a call to end, and watch it until it has."""
        self._abandoned[task] = key
        task.add_done_callback(self._on_abandoned_done)
        task.cancel()

    def _on_abandoned_done(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.pop(task, None)
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not report it a second time

    def _log_failure(self, call: str, error: BaseException | None) -> None:
        """Log a fault of the adapter once, until the same call has worked again."""
        if call not in self._failing_calls:
            self._failing_calls.add(call)
            log.error("adapter failed", action="adapter_failed", adapter=self._name, endpoint=call, error=error or "time-out")

    def _log_recovery(self, call: str) -> None:
        if call in self._failing_calls:
            self._failing_calls.discard(call)
            log.info("adapter works again", action="adapter_recovered", adapter=self._name, endpoint=call)


async def _convert_system_exit(work: Coroutine[Any, Any, T]) -> T:
    try:
        return await work
    except SystemExit as exc:
        raise RuntimeError("the adapter wanted to end the program") from exc
