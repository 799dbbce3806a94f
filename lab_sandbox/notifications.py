"""Tells partners of status changes of their orders ("Events"): each is kept in a list, and posted to the address of the card.

The interface shows neither the channel nor the payload.
"""

import asyncio
from typing import Final

import httpx
from httpx_aiohttp import AiohttpTransport

from lab_sandbox.config import SandboxConfig
from lab_sandbox.exact_json import Json, decode_stored, encode
from lab_sandbox.path_aliases import ORDER_TASK_CODE
from lab_sandbox.references import parse_reference
from lab_sandbox.resource_store import ResourceStore, StoredResource
from lab_sandbox.rule_helpers import objects_in
from lab_sandbox.search_index import concept_codes

RETRY_DELAYS: Final = (0.2, 1.0)
"""Seconds before the second and third attempt; after that only the list has the notification."""
_TIMEOUT: Final = 5.0
_BATCH: Final = 100


class NotificationSender:
    """Posts each partner's notifications one after the other, beside the requests.

    What waits is only in the store: an address that does not answer costs no memory, and delays no other partner's notifications.
    """

    def __init__(self, store: ResourceStore, config: SandboxConfig, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._store = store
        self._config = config
        self._transport = transport
        self._sent: dict[str, int] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    def add(self, stored: StoredResource, before: Json, after: Json, now: str) -> None:
        """Lists an update of a Task for its owner if the status has changed, and starts to post what is listed."""
        if stored.ref.type != "Task" or before.get("status") == after.get("status"):
            return
        receiver = stored.access.owner
        number = self._store.add_notification(receiver, encode(_build_notification(stored, before, after, now)))
        party = self._config.counterparty(receiver)
        if party is None or party.kind != "partner" or party.address is None:
            return
        self._sent.setdefault(receiver, number - 1)
        if receiver not in self._running:
            self._running[receiver] = asyncio.create_task(self._post_all(receiver, party.address), name=f"notify-{party.name}")

    async def close(self) -> None:
        """Stops; what was not posted stays listed."""
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _post_all(self, receiver: str, address: str) -> None:
        transport = self._transport or AiohttpTransport()
        async with httpx.AsyncClient(transport=transport, timeout=_TIMEOUT, trust_env=False) as http:
            try:
                while found := self._store.notifications(receiver, self._sent[receiver], _BATCH):
                    for number, body in found:
                        await _post(http, address, encode({"number": number, **decode_stored(body)}))
                        self._sent[receiver] = number
            finally:
                # Before the client closes: what is listed meanwhile starts another run.
                del self._running[receiver]


async def _post(http: httpx.AsyncClient, address: str, body: bytes) -> None:
    for delay in (*RETRY_DELAYS, None):
        try:
            answer = await http.post(address, content=body, headers={"Content-Type": "application/json"})
        except (httpx.HTTPError, httpx.InvalidURL):
            answer = None
        if delay is None or (answer is not None and answer.status_code < 500):
            return
        await asyncio.sleep(delay)


def _build_notification(stored: StoredResource, before: Json, after: Json, now: str) -> Json:
    """Fields: `task` and `order_task` (references), `level` (order or line), `status`, `previous`, `version`, `time`."""
    is_order = ORDER_TASK_CODE in set(concept_codes(after.get("code")))
    parents = [stored.ref] if is_order else [parse_reference(one.get("reference")) for _, one in objects_in(after, "partOf")]
    return {
        "task": stored.ref.key(),
        "order_task": next((ref.key() for ref in parents if ref is not None), None),
        "level": "order" if is_order else "line",
        "status": after.get("status"),
        "previous": before.get("status"),
        "version": stored.version,
        "time": now,
    }
