"""The hl7v2 adapter: orders out and results in over MLLP, on one or two connections, whichever side connects."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import structlog
from pydantic import BaseModel

from lab_agent.lis.disk_errors import to_lis_failure
from lab_agent.lis.hl7v2.message_archive import MessageArchive
from lab_agent.lis.hl7v2.message_trace import trace_raw_message
from lab_agent.lis.hl7v2.orders.order_builder import OrderBuilder
from lab_agent.lis.hl7v2.orders.pending_acks import PendingAcks
from lab_agent.lis.hl7v2.orders.sender import Sender
from lab_agent.lis.hl7v2.orders.sent_messages import Answer, SentMessageLog
from lab_agent.lis.hl7v2.orders.submission import OrderSubmitter, report_answer, report_rejected_lines
from lab_agent.lis.hl7v2.receiver import Receiver
from lab_agent.lis.hl7v2.results.continued_messages import ContinuedMessages
from lab_agent.lis.hl7v2.settings import ConnectionSettings, Hl7v2Settings
from lab_agent.lis.hl7v2.transport.connection import ConnectionLimits, MllpConnection
from lab_agent.lis.hl7v2.transport.connector import MllpConnector
from lab_agent.lis.hl7v2.transport.input_budget import InputBudget, InputHolder
from lab_agent.lis.hl7v2.transport.mllp import ReceivedFrame
from lab_agent.lis.lab_messages import LabMessage, LabReport
from lab_agent.lis.lab_order import LabOrder
from lab_agent.lis.laboratory_system import Inbox, ParsedMessage, RenderedOrder, SubmitResult
from lab_agent.lis.operator_alerts import OperatorAlerts, Trouble
from lab_agent.shared.asyncio_errors import retrieve_error
from lab_agent.shared.errors import LisUnavailable
from lab_agent.shared.ids import LineKey, OrderKey

log = structlog.get_logger(__name__)
_RESULTS = "results"
_PATIENCE_SECONDS = 5.0


class Hl7v2Adapter:
    """A LIS that speaks HL7 v2."""

    Settings: ClassVar[type[BaseModel]] = Hl7v2Settings
    trial_settings: ClassVar[Mapping[str, Any]] = {
        "orders": {"role": "client", "port": 6661},
        "folder": "no-folder-of-hl7v2",
        "duplicates": "none",
    }
    """Enough to read a captured message without settings; nothing connects, and the folder is not created."""
    idempotent: bool = False
    """Whether the LIS recognises repeats: set for each instance by its setting `duplicates`."""

    def __init__(self, settings: Hl7v2Settings, name: str) -> None:
        self.idempotent = settings.duplicates != "none"
        self._settings = settings
        self._name = name
        self._pending_acks = PendingAcks()
        self._archive = MessageArchive(settings.folder, settings.keep_days)
        self._sent = SentMessageLog(settings.folder, settings.keep_days)
        patience = min(_PATIENCE_SECONDS, settings.frame_timeout)
        self._budget = InputBudget(settings.max_unfinished_bytes, patience, self._on_input_aborted)
        self._alerts: OperatorAlerts | None = None
        self._alert_tasks: set[asyncio.Task[None]] = set()
        self._order_connector = self._create_connector(settings.orders, "orders")
        self._result_connector = self._create_connector(settings.results, _RESULTS) if settings.results else None
        sender = Sender(settings, self._order_connector, self._pending_acks)
        self._submitter = OrderSubmitter(settings, OrderBuilder(settings), sender, self._sent)
        self._receiver: Receiver | None = None

    @property
    def ports(self) -> tuple[int, int]:
        """The ports for orders and for results; for a server, the port it actually listens on."""
        return self._order_connector.port, (self._result_connector or self._order_connector).port

    async def start(self, inbox: Inbox) -> None:
        """Listen, or start connecting. `check` reports a LIS that is unreachable; reconnecting is automatic."""
        try:
            await asyncio.to_thread(self._open_folder)
        except OSError as exc:
            raise to_lis_failure(exc, "the adapter's folder") from exc
        continued = self._continued_messages(inbox)
        self._receiver = Receiver(self._settings, self._name, inbox, self._pending_acks, self._archive, continued, self._sent)
        self._alerts = OperatorAlerts(inbox, asyncio.get_running_loop().time)
        try:
            for connector in self._connectors:
                await connector.open()
        except LisUnavailable:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close all connections. The LIS resends a message in progress, since it got no acknowledgement."""
        for connector in self._connectors:
            await connector.close()
        await asyncio.gather(*self._alert_tasks, return_exceptions=True)
        self._receiver = self._alerts = None

    async def check(self) -> None:
        """Check that the LIS is connected; without a start, that it can be reached."""
        for connector in self._connectors:
            if self._receiver is None:
                await connector.check_reachable()
            elif connector.is_client or connector is self._order_connector:
                await connector.get_connection(self._settings.connect_timeout)

    async def prepare(self, order: LabOrder) -> None:
        """Check that the order can be written as HL7 at all."""
        self._submitter.build_messages(order)

    async def submit(self, order: LabOrder) -> SubmitResult:
        """Send the order, and wait for the acknowledgement that the settings ask for."""
        inbox = self._require_receiver().inbox
        answers = await self._submitter.submit(order)
        result = await _to_submit_result(order, answers, inbox)
        self._report_unnamed_lines(order, result)
        return result

    async def was_received(self, key: OrderKey) -> bool | None:
        """What the LIS answered, even after the timeout or a restart; None if it has not answered."""
        inbox = self._require_receiver().inbox
        received = await self._submitter.was_received(key)
        if received:
            for message, answer in await self._submitter.answers(key):
                await report_answer(inbox, key, answer, message.lines)
        return received

    async def cancel(self, order: OrderKey, lines: tuple[LineKey, ...], reason: str) -> None:
        """Send a cancellation (ORC-1 is CA)."""
        self._require_receiver()
        await self._submitter.cancel(order, lines, reason)

    async def collect(self) -> int:
        """Nothing to collect: the LIS sends. Old raw messages are deleted, and continued ones that ended halfway are refused.

        Raises `LisUnavailable` while a connection that we open cannot be opened: nothing would come by it.
        """
        await asyncio.to_thread(self._archive.purge)
        await self._require_receiver().refuse_unfinished()
        await asyncio.to_thread(self._sent.purge)
        if self._alerts is not None:
            await self._alerts.close_quiet()
        for connector in self._connectors:
            if connector.is_down:
                raise LisUnavailable(connector.disconnect_reason)
        return 0

    async def parse_message(self, raw: bytes, name: str) -> ParsedMessage:  # noqa: ARG002 — the protocol's signature
        """Read a message, in a frame or bare, as it would be read if it arrived."""
        return await asyncio.to_thread(trace_raw_message, raw, self._name, self._settings, self._archive)

    async def render_order(self, order: LabOrder) -> tuple[RenderedOrder, ...]:
        """Write the order's messages, without their frames."""
        messages = await asyncio.to_thread(self._submitter.build_messages, order)
        names = [f"{order.key}.hl7"] if len(messages) == 1 else [f"{order.key}-{n}.hl7" for n in range(1, len(messages) + 1)]
        return tuple(map(RenderedOrder, names, messages))

    async def reload(self, settings: BaseModel) -> None:
        """Use another map from the next message on. No connection is touched, and what is being read is read with the old one."""
        if not isinstance(settings, Hl7v2Settings):
            raise LisUnavailable("these are not settings of the hl7v2 adapter")
        self._settings = settings
        self._submitter = replace(self._submitter, settings=settings, builder=OrderBuilder(settings))
        if self._receiver is not None:
            self._receiver = replace(self._receiver, settings=settings)

    async def on_replayed(self, message: LabMessage) -> None:
        """Keep the values of a replayed report that is not final, as those of one that came on a connection."""
        if isinstance(message, LabReport):
            await asyncio.to_thread(self._archive.save_open_report, message)

    def _report_unnamed_lines(self, order: LabOrder, result: SubmitResult) -> None:
        """Alert that the LIS may read the first line alone, until an answer to several lines names them all."""
        if self._alerts is None or len(order.lines) < 2:
            return
        if not result.unnamed_lines:
            self._write_alert(self._alerts.close(Trouble.UNNAMED_LINES))
            return
        text = (
            f"its answer to order {order.key} accepts it and does not name {', '.join(result.unnamed_lines)}: ask whether it has "
            "these lines; if it reads only the first of each message, set `one_line_per_message`"
        )
        self._report_trouble(Trouble.UNNAMED_LINES, text)

    def _continued_messages(self, inbox: Inbox) -> ContinuedMessages:
        """They are handled in threads, and sealed on the loop."""
        ours, loop = self._settings, asyncio.get_running_loop()
        return ContinuedMessages(
            ours.folder / "continued",
            ours.max_message_bytes,
            ours.frame_timeout,
            seal=lambda content: asyncio.run_coroutine_threadsafe(inbox.seal(content), loop).result(),
            unseal=lambda sealed: asyncio.run_coroutine_threadsafe(inbox.unseal(sealed), loop).result(),
        )

    def _open_folder(self) -> None:
        self._archive.open()
        self._sent.open()

    @property
    def _connectors(self) -> tuple[MllpConnector, ...]:
        return (self._order_connector, self._result_connector) if self._result_connector else (self._order_connector,)

    def _create_connector(self, settings: ConnectionSettings, purpose: str) -> MllpConnector:
        ours = self._settings
        limits = ConnectionLimits(
            connect=ours.connect_timeout,
            frame=ours.frame_timeout,
            reconnect=ours.reconnect_wait,
            keep_alive=ours.keep_alive,
            max_message_bytes=ours.max_message_bytes,
            answers_unreadable=purpose == _RESULTS or ours.results is None,
        )
        on_crowded = partial(self._report_trouble, Trouble.CONNECTIONS)
        return MllpConnector(settings, limits, self._budget, self._handle_frame, on_crowded, f"{self._name}-{purpose}")

    def _report_trouble(self, trouble: Trouble, text: str) -> None:
        if self._alerts is not None:
            self._write_alert(self._alerts.report(trouble, text))

    def _write_alert(self, writing: Coroutine[Any, Any, None]) -> None:
        """Write an alert in the background: what it is about must not fail with it."""
        task = asyncio.create_task(writing, name=f"hl7:{self._name}:alert")
        self._alert_tasks.add(task)
        task.add_done_callback(self._on_alert_written)

    def _on_alert_written(self, task: asyncio.Task[None]) -> None:
        self._alert_tasks.discard(task)
        if error := retrieve_error(task):
            log.error("alert not stored", action="hl7_alert_not_stored", adapter=self._name, error=error)

    def _on_input_aborted(self, holder: InputHolder, size: int) -> None:
        host = holder.host if isinstance(holder, MllpConnection) else ""
        log.warning("unfinished message dropped", action="hl7_unfinished_dropped", adapter=self._name, host=host, size=size)
        limit = self._settings.max_unfinished_bytes
        self._report_trouble(
            Trouble.UNFINISHED_INPUT,
            f"messages that do not end hold more than {limit} bytes (`max_unfinished_bytes`): the longest, of {size} bytes from "
            f"{host}, was dropped and its connection closed",
        )

    async def _handle_frame(self, connection: MllpConnection, frame: ReceivedFrame) -> None:
        await self._require_receiver().handle(connection, frame)

    def _require_receiver(self) -> Receiver:
        if self._receiver is None:
            raise LisUnavailable("the adapter was not started")
        return self._receiver


async def _to_submit_result(order: LabOrder, answers: Collection[Answer], inbox: Inbox) -> SubmitResult:
    """Read the LIS's numbers; lines that it rejects go to the inbox."""
    own = {str(line.key) for line in order.lines}
    for answer in answers:
        await report_rejected_lines(inbox, order.key, answer, own)
    numbers = {LineKey(key): number for answer in answers for key, number in answer.accessions if key in own}
    whole = next(iter(set(numbers.values()))) if len(set(numbers.values())) == 1 and len(numbers) > 1 else None
    unnamed = tuple(LineKey(line) for answer in answers for line in answer.unnamed_lines)
    return SubmitResult(accession=whole, line_accessions=numbers, unnamed_lines=unnamed)
