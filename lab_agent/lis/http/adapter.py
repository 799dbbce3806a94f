"""The http adapter: the client for orders, the endpoint for results on a port of its own, and the lifecycle of both."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Mapping
from typing import Any, ClassVar

import structlog
from pydantic import BaseModel

from lab_agent.lis.http.client import LisHttpClient, parse_submit_result
from lab_agent.lis.http.settings import HttpSettings, HttpTlsSettings
from lab_agent.lis.http.webhook import ResultWebhook, make_app
from lab_agent.lis.lab_order import LabOrder
from lab_agent.lis.laboratory_system import Inbox, ParsedMessage, RenderedOrder, SubmitResult
from lab_agent.lis.operator_alerts import OperatorAlerts
from lab_agent.lis.raw_messages import parse_json_message
from lab_agent.lis.serialization import dump_order
from lab_agent.shared import exact_json
from lab_agent.shared.errors import LisUnavailable
from lab_agent.shared.http_client import HttpClient, HttpOptions
from lab_agent.shared.ids import LineKey, OrderKey
from lab_agent.shared.web_server import ConnectionLimits, ListenError, default_max_connections, listen, serve

log = structlog.get_logger(__name__)
_DRAIN_SECONDS = 5.0
_ANSWER_SECONDS = 15.0
"""How long the server waits after the endpoint's own deadline of a body: the sender has to see the answer 408."""


class HttpAdapter:
    """A LIS that receives orders as signed webhooks and posts results to us."""

    Settings: ClassVar[type[BaseModel]] = HttpSettings
    trial_settings: ClassVar[Mapping[str, Any]] = {"url": "https://lis.invalid", "secret": "0" * 16, "incoming_secret": "1" * 16}
    """Enough to read a captured message without settings; nothing is opened."""
    idempotent: ClassVar[bool] = True
    contract_version: ClassVar[int] = 1

    def __init__(self, settings: HttpSettings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._client: HttpClient | None = None
        self._server_task: asyncio.Task[None] | None = None
        self._alerts: OperatorAlerts | None = None
        self._port = settings.port

    @property
    def port(self) -> int:
        """The port the endpoint listens on, once started."""
        return self._port

    async def start(self, inbox: Inbox) -> None:
        """Listen for results. The LIS need not be reachable."""
        if self._server_task is not None and not self._server_task.done():
            return
        settings = self._settings
        tls = await asyncio.to_thread(_load_tls_context, settings.tls) if settings.tls else None
        try:
            sock = listen(settings.host, settings.port, settings_group=f"lis.{self._name}")
        except ListenError as exc:
            raise LisUnavailable(str(exc)) from exc
        self._port = sock.getsockname()[1]
        self._alerts = OperatorAlerts(inbox, asyncio.get_running_loop().time)
        app = make_app(ResultWebhook(settings, self._name, inbox, self._alerts))
        limits = ConnectionLimits(max_connections=default_max_connections(), body_timeout=settings.body_timeout + _ANSWER_SECONDS)
        serving = serve(app, sock, drain=_DRAIN_SECONDS, limits=limits, tls=tls)
        self._server_task = asyncio.create_task(serving, name=f"lis:{self._name}:endpoint")
        self._server_task.add_done_callback(lambda _: sock.close())  # also if it was cancelled before it started

    async def stop(self) -> None:
        """Stop listening; requests in progress are answered first."""
        serving, self._server_task = self._server_task, None
        client, self._client = self._client, None
        if serving is not None:
            serving.cancel()
            await asyncio.wait({serving})
        if client is not None:
            await client.aclose()

    async def check(self) -> None:
        """Check that our endpoint is alive, and call `check_path` of the LIS if it is set."""
        if self._server_task is not None and self._server_task.done():
            raise LisUnavailable("the endpoint for results stopped unexpectedly; restart the agent")
        try:
            if self._settings.check_path and not await self._lis_client().has_resource(self._settings.check_path, "check"):
                raise LisUnavailable("the LIS answered 404 to check_path; correct that setting")
        finally:
            if self._server_task is None:  # called without a start: leave nothing open
                await self.stop()

    async def prepare(self, order: LabOrder) -> None:
        """Nothing to prepare: the LIS sees an order only when it is posted."""

    async def submit(self, order: LabOrder) -> SubmitResult:
        """Post the order under its key, by which the LIS recognises a repeat."""
        body = await asyncio.to_thread(dump_order, order)
        return parse_submit_result(await self._lis_client().post(self._settings.orders_path, order.key, body))

    async def was_received(self, key: OrderKey) -> bool | None:
        """Ask the LIS if `status_path` is set; otherwise None, and the order may be posted again."""
        if not self._settings.status_path:
            return None
        return await self._lis_client().has_resource(self._settings.status_path.replace("{key}", key), key)

    async def cancel(self, order: OrderKey, lines: tuple[LineKey, ...], reason: str) -> None:
        """Post the cancellation."""
        entries = [{"line": line, "reason": reason} for line in lines]
        body = exact_json.dumps({"kind": "cancel", "order": order, "lines": entries})
        name = f"{order}-{hashlib.sha256(body).hexdigest()[:16]}"
        await self._lis_client().post(self._settings.cancel_path, name, body)

    async def parse_message(self, raw: bytes, name: str) -> ParsedMessage:
        """Read a body as the endpoint would; `name` is its Idempotency-Key, or the id that it was rejected under."""
        return await asyncio.to_thread(parse_json_message, raw, name, zone=self._settings.zone, table=f"lis.{self._name}")

    async def render_order(self, order: LabOrder) -> tuple[RenderedOrder, ...]:
        """Write the body that is posted."""
        return (RenderedOrder(f"{order.key}.json", await asyncio.to_thread(dump_order, order)),)

    async def collect(self) -> int:
        """Nothing to collect, as the LIS posts its results; alerts that are over are closed."""
        if self._alerts is not None:
            await self._alerts.close_quiet()
        return 0

    def _lis_client(self) -> LisHttpClient:
        if self._client is None:
            settings = self._settings
            options = HttpOptions(
                timeout=settings.timeout,
                connect_timeout=min(10.0, settings.timeout),
                read_timeout=settings.timeout,
                max_response=1024 * 1024,
                ca_file=settings.ca_file,
                proxy=settings.proxy,
            )
            self._client = HttpClient(options)
        return LisHttpClient(self._settings, self._client)


def _load_tls_context(tls: HttpTlsSettings) -> ssl.SSLContext:
    """Make the TLS context of the endpoint. Raises `LisUnavailable` if its files cannot be used."""
    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tls.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED if tls.ca is not None else ssl.CERT_NONE
        context.load_cert_chain(tls.certificate, tls.key, password=lambda: "")
    except (OSError, ssl.SSLError) as exc:
        raise LisUnavailable(f"the files of the table tls cannot be used: {exc.strerror or type(exc).__name__}") from exc
    return context
