"""Stands between the agent and an adapter: foreign code may be slow, wrong or broken, and must not disturb anything else.

Every call has a deadline, every return value is validated, and only the three failures of the contract leave this module.
A call that does not end when cancelled is abandoned but watched: while it lives, no other call about the same order is made,
because nobody could say what it might still do. A wrong return value of `submit` leaves the outcome unknown; elsewhere it
counts as no answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from pydantic import BaseModel
from typing_extensions import override

from lab_agent.lis.adapter_checks import (
    MAX_MESSAGE_ID_LENGTH,
    check_message_count,
    check_parsed_message,
    check_rendered,
    check_submit_result,
    check_was_received,
    unparsed_message,
    validate_delivered,
)
from lab_agent.lis.lab_messages import LabMessage
from lab_agent.lis.lab_order import LabOrder
from lab_agent.lis.laboratory_system import (
    Inbox,
    LisAdapter,
    OrderRenderer,
    ParsedMessage,
    RawMessageParser,
    ReloadableAdapter,
    RenderedOrder,
    ReplayListener,
    SubmitResult,
)
from lab_agent.shared.asyncio_errors import retrieve_error
from lab_agent.shared.call_trace import traced_call
from lab_agent.shared.errors import Failure, LisOutcomeUnknown, LisRejected, LisUnavailable, StoreError
from lab_agent.shared.ids import LineKey, OrderKey
from lab_agent.shared.metrics import CallObserver, ignore, measure_call

log = structlog.get_logger(__name__)

_MAX_REASON_LENGTH = 2000
_MAX_ALERT_KEY_LENGTH = 100


@dataclass(frozen=True, slots=True)
class GuardedInbox(Inbox):
    """The inbox as an adapter gets it: validates every message before it comes near the store.

    `on_use` is called before and after each use: it is a sign of life. `on_skip` counts what the adapter leaves out.
    """

    inbox: Inbox
    adapter: str
    on_use: Callable[[], None] = lambda: None
    on_skip: Callable[[], None] = lambda: None

    @override
    async def accept(self, message_id: str, message: LabMessage) -> bool:
        """Store a message. Raises `DataInvalidError`, naming every invalid field."""
        with self._use():
            return await self._accept(message_id, message)

    async def _accept(self, message_id: str, message: LabMessage) -> bool:
        validated = await asyncio.to_thread(validate_delivered, message_id, message)
        return await self.inbox.accept(message_id, validated)

    @override
    async def accept_all(self, messages: Mapping[str, LabMessage]) -> frozenset[str]:
        """Store several messages. Raises `DataInvalidError` for the first that is invalid; nothing is stored then."""
        with self._use():
            validated = await asyncio.to_thread(lambda: {name: validate_delivered(name, each) for name, each in messages.items()})
            return await self.inbox.accept_all(validated)

    @override
    async def was_accepted(self, message_id: str) -> bool:
        with self._use():
            return await self.inbox.was_accepted(message_id)

    @override
    async def find_accepted(self, message_ids: Collection[str]) -> frozenset[str]:
        with self._use():
            return await self.inbox.find_accepted(message_ids)

    @override
    async def reject(self, message_id: str, reason: str, *, raw: bytes | None = None) -> None:
        """Record the rejection, with its texts cut to a bearable length."""
        with self._use():
            await self.inbox.reject(str(message_id)[:MAX_MESSAGE_ID_LENGTH], str(reason)[:_MAX_REASON_LENGTH], raw=raw)

    @override
    async def skip(self, message_id: str, reason: str) -> None:
        """Count what was left out, with its texts cut to a bearable length."""
        self.on_skip()
        with self._use():
            await self.inbox.skip(str(message_id)[:MAX_MESSAGE_ID_LENGTH], str(reason)[:_MAX_REASON_LENGTH])

    @override
    async def alert(self, key: str, text: str | None) -> None:
        """Open or close an alert, with its texts cut to a bearable length."""
        with self._use():
            await self.inbox.alert(str(key)[:_MAX_ALERT_KEY_LENGTH], None if text is None else str(text)[:_MAX_REASON_LENGTH])

    @override
    async def seal(self, content: bytes) -> bytes:
        with self._use():
            return await self.inbox.seal(content)

    @override
    async def unseal(self, sealed: bytes) -> bytes | None:
        with self._use():
            return await self.inbox.unseal(sealed)

    @contextmanager
    def _use(self) -> Iterator[None]:
        self.on_use()
        try:
            yield
        finally:
            self.on_use()


T = TypeVar("T")
_STOP_GRACE_SECONDS = 5.0


class GuardedAdapter:
    """A `Lis`: an adapter behind its guard. `timeout` is the seconds a call may take; `on_call` is told of every call,
    `on_skip` of everything that the adapter leaves out on purpose.

    If `start` failed because the LIS was unavailable, each later call tries to start first, so that it recovers by itself.
    """

    def __init__(
        self,
        adapter: LisAdapter,
        name: str,
        *,
        timeout: float,
        on_call: CallObserver = ignore,
        on_skip: Callable[[], None] = lambda: None,
    ) -> None:
        self._adapter = adapter
        self._name = name
        self._timeout = timeout
        self._on_call = on_call
        self._on_skip = on_skip
        self._inbox: GuardedInbox | None = None
        self._started = False
        self._start_lock = asyncio.Lock()
        self._abandoned: dict[asyncio.Task[Any], str] = {}
        self._failing_calls: set[str] = set()
        self._inbox_used_at = 0.0
        """Loop time."""

    @property
    def idempotent(self) -> bool:
        """What the adapter declares."""
        return self._adapter.idempotent

    async def start(self, inbox: Inbox) -> None:
        """Start the adapter; if that fails, the next call tries again. Raises `LisUnavailable`."""
        self._inbox = GuardedInbox(inbox, self._name, self._record_progress, self._on_skip)
        await self._ensure_started()

    async def stop(self) -> None:
        """Stop the adapter. What it raises is logged and goes no further."""
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
        """Check the LIS; works without a start."""
        await self._call("check", self._adapter.check())

    async def prepare(self, order: LabOrder) -> None:
        """Prepare the order."""
        end = await self._ensure_ready(order.key)
        await self._call("prepare", self._adapter.prepare(order), key=order.key, deadline=end)

    async def submit(self, order: LabOrder) -> SubmitResult:
        """Submit the order. Any failure but the three of the contract leaves the outcome unknown."""
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
        """Tell the LIS of a withdrawal."""
        end = await self._ensure_ready(order)
        await self._call("cancel", self._adapter.cancel(order, lines, reason), key=order, deadline=end)

    async def collect(self) -> int:
        """Fetch waiting results. A burst may take long: the time-out counts from the last message that was taken."""
        end = await self._ensure_ready("collect")
        work = self._adapter.collect()
        return check_message_count(await self._call("collect", work, key="collect", deadline=end, renewed=True), self._name)

    @property
    def can_parse(self) -> bool:
        """Whether the adapter can show what it reads of a raw message (`RawMessageParser`)."""
        return isinstance(self._adapter, RawMessageParser)

    async def parse_message(self, raw: bytes, name: str) -> ParsedMessage:
        """Read a raw message as the adapter would; nothing is started, and nothing is stored.

        Every content is checked as the inbox would check it. What fails, the adapter itself included, is a part with a problem.
        """
        if not isinstance(self._adapter, RawMessageParser):
            return unparsed_message(name, f"the adapter {self._name} cannot read messages outside of its own exchange")
        try:
            parsed = await self._call("parse_message", self._adapter.parse_message(raw, name), key="parse_message")
        except (LisUnavailable, LisRejected, LisOutcomeUnknown) as failure:
            return unparsed_message(name, str(failure))
        return await asyncio.to_thread(check_parsed_message, parsed, name, self._name)

    @property
    def can_render(self) -> bool:
        """Whether the adapter can show what it would send (`OrderRenderer`)."""
        return isinstance(self._adapter, OrderRenderer)

    async def render_order(self, order: LabOrder) -> tuple[RenderedOrder, ...]:
        """Write an order as `submit` would write it; nothing is started or sent. Empty where the adapter cannot show it."""
        if not isinstance(self._adapter, OrderRenderer):
            return ()
        return check_rendered(await self._call("render_order", self._adapter.render_order(order)), self._name)

    async def reload(self, settings: BaseModel) -> bool:
        """Let the adapter take over its settings, whose files were read again. False: it cannot. Raises `LisUnavailable`."""
        if isinstance(self._adapter, ReloadableAdapter):
            await self._call("reload", self._adapter.reload(settings))
        return isinstance(self._adapter, ReloadableAdapter)

    async def on_replayed(self, message: LabMessage) -> None:
        """Tell the adapter of a message that a replay has put into the inbox, if it wants to know. Raises `LisUnavailable`."""
        if isinstance(self._adapter, ReplayListener):
            await self._call("on_replayed", self._adapter.on_replayed(message))

    def _record_progress(self) -> None:
        self._inbox_used_at = asyncio.get_running_loop().time()

    async def _ensure_ready(self, key: str) -> float:
        """Start the adapter if that is still to be done; returns the deadline (loop time) of the call, the start included.

        The whole must end within `timeout`, since the lease on the job outlasts that and no more.
        """
        end = self._deadline()
        if key in self._abandoned.values():
            raise LisUnavailable(f"the adapter {self._name} is still busy with an earlier call that timed out")
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
        renewed: bool = False,
        default_error: type[Failure] = LisUnavailable,
    ) -> T:
        """Make a call that ends at `deadline` (default: after `timeout`), or, `renewed`, that long after its last progress."""
        end = self._deadline() if deadline is None else deadline
        with measure_call(call, self._on_call), traced_call(call):
            return await self._run_until_deadline(
                call,
                work,
                key=key,
                deadline=(lambda: max(end, self._inbox_used_at + self._timeout)) if renewed else (lambda: end),
                default_error=default_error,
            )

    async def _run_until_deadline(
        self, call: str, work: Coroutine[Any, Any, T], *, key: str, deadline: Callable[[], float], default_error: type[Failure]
    ) -> T:
        task = asyncio.ensure_future(_convert_system_exit(work))
        task.set_name(f"lis:{self._name}:{call}")
        try:
            await _wait_until(task, deadline)
        finally:
            if not task.done():
                self._abandon(task, key)
        if not task.done():
            self._log_failure(call, None)
            raise default_error(f"{call} of the adapter {self._name} timed out after {self._timeout:g} seconds")
        return self._outcome(call, task, default_error)

    def _outcome(self, call: str, task: asyncio.Future[T], default_error: type[Failure]) -> T:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            self._log_recovery(call)
            return task.result()
        if isinstance(error, LisUnavailable | LisRejected | LisOutcomeUnknown | StoreError):
            raise error  # our own store failed behind the inbox: not the laboratory's fault
        self._log_failure(call, error)
        raise default_error(f"{call} of the adapter {self._name} failed with {type(error).__name__}") from error

    def _abandon(self, task: asyncio.Task[Any], key: str) -> None:
        """Cancel a call, and watch it until it has ended."""
        self._abandoned[task] = key
        task.add_done_callback(self._on_abandoned_done)
        task.cancel()

    def _on_abandoned_done(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.pop(task, None)
        retrieve_error(task)  # it was told when the call was given up

    def _log_failure(self, call: str, error: BaseException | None) -> None:
        """Log a failure of the adapter once, until the same call has worked again."""
        if call not in self._failing_calls:
            self._failing_calls.add(call)
            log.error("adapter failed", action="adapter_failed", adapter=self._name, endpoint=call, error=error or "timeout")

    def _log_recovery(self, call: str) -> None:
        if call in self._failing_calls:
            self._failing_calls.discard(call)
            log.info("adapter recovered", action="adapter_recovered", adapter=self._name, endpoint=call)


async def _wait_until(task: asyncio.Future[Any], deadline: Callable[[], float]) -> None:
    """Wait until the task is done or the deadline, which may move, is over."""
    now = asyncio.get_running_loop().time
    rest = max(0.0, deadline() - now())
    while not (await asyncio.wait({task}, timeout=rest))[0]:
        rest = deadline() - now()
        if rest <= 0:
            return


async def _convert_system_exit(work: Coroutine[Any, Any, T]) -> T:
    try:
        return await work
    except SystemExit as exc:
        raise RuntimeError("the adapter called sys.exit") from exc
