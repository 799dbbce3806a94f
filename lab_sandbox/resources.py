"""The life of a resource: created with rights, read by right, replaced as a whole under a new version, never half."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any
from uuid import uuid4

from lab_sandbox.config import Counterparty, SandboxConfig
from lab_sandbox.index import terms
from lab_sandbox.notices import task_notice
from lab_sandbox.outcome import Refusal
from lab_sandbox.references import Ref
from lab_sandbox.rights import Access
from lab_sandbox.shelf import Kept, Shelf
from lab_sandbox.wire import Json, decode_stored, encode

Clock = Callable[[], datetime]


class Resources:
    """Creates, reads and updates resources on the shelf, on behalf of a counterparty."""

    def __init__(self, shelf: Shelf, config: SandboxConfig, clock: Clock) -> None:
        self._shelf = shelf
        self._config = config
        self._clock = clock

    def create(
        self, kind: str, body: Json, owner: Counterparty, grants: Iterable[tuple[str, str]], id_: str | None = None
    ) -> Kept:
        """Keeps a new resource in version 1; the creator owns it, others have what was granted and nothing else."""
        ref = Ref(kind, id_ or str(uuid4()))
        access = Access(owner.guid).with_grants(grants)
        stored = self._with_meta(ref, body, access, 1)
        return self._shelf.insert(ref, access, encode(stored), terms(kind, stored, self._config.own_addresses))

    def replace(self, old: Kept, body: Json, grants: Iterable[tuple[str, str]] = ()) -> Kept:
        """The whole resource anew, one version higher; what the body does not carry is gone, rights are only added to."""
        before = decode_stored(old.body)
        access = old.access.with_grants(grants)
        stored = self._with_meta(old.ref, body, access, old.version + 1)
        was, now = (terms(old.ref.type, body_, self._config.own_addresses) for body_ in (before, stored))
        with self._shelf.transaction():
            kept = self._shelf.replace(old, old.version + 1, access, encode(stored), gone=was - now, fresh=now - was)
            notice = task_notice(kept, before, stored, self._now())
            if notice is not None:
                self._shelf.add_notice(kept.access.owner, encode(notice))
        return kept

    def add_rights(self, old: Kept, grants: Iterable[tuple[str, str]]) -> Kept:
        """`$meta-add`: more rights on the same version."""
        access = old.access.with_grants(grants)
        stored = decode_stored(old.body)
        stored["meta"]["security"] = access.security(self._config.base_url)
        return self._shelf.replace(old, old.version, access, encode(stored))

    def get(self, ref: Ref, caller: Counterparty, right: str = "read") -> Kept:
        """The resource when it is there and the caller has the right; else a `Refusal`.

        404 when it is not there. Without the right: 404 for a Binary ("Errors": result document without read right), else
        the configured code. Whoever may not even read gets no other answer to a write.
        """
        kept = self._shelf.get(ref)
        if kept is None or (ref.type == "Binary" and not kept.access.may("read", caller.guid)):
            raise Refusal.of(404, "not-found", f"{ref.type}/{ref.id}: there is no such resource, or no right to read it")
        if not kept.access.may(right, caller.guid):
            raise self._no_right(ref, right)
        return kept

    def peek(self, ref: Ref) -> Kept | None:
        """The resource, whoever may read it."""
        return self._shelf.get(ref)

    def _no_right(self, ref: Ref, right: str) -> Refusal:
        code = self._config.rules.no_right_code
        if code == 404:
            return Refusal.of(404, "not-found", f"{ref.type}/{ref.id}: there is no such resource, or no right to read it")
        return Refusal.of(403, "forbidden", f"{ref.type}/{ref.id}: meta.security does not give you the right {right}")

    def _with_meta(self, ref: Ref, body: Json, access: Access, version: int) -> Json:
        given = body.get("meta")
        meta: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
        meta |= {"versionId": str(version), "lastUpdated": self._now(), "security": access.security(self._config.base_url)}
        rest = {key: value for key, value in body.items() if key not in {"resourceType", "id", "meta"}}
        return {"resourceType": ref.type, "id": ref.id, "meta": meta, **rest}

    def _now(self) -> str:
        return self.now().isoformat(timespec="milliseconds")

    def now(self) -> datetime:
        """The service's time."""
        return self._clock()
