"""The life of a resource: created with rights, read by right, replaced as a whole under a new version, never half."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any
from uuid import uuid4

from lab_sandbox.access_rights import AccessRights
from lab_sandbox.config import Counterparty, SandboxConfig
from lab_sandbox.errors import HttpError
from lab_sandbox.exact_json import Json, decode_stored, encode
from lab_sandbox.notifications import build_task_notification
from lab_sandbox.references import Ref
from lab_sandbox.resource_store import ResourceStore, StoredResource
from lab_sandbox.search_index import index_terms

Clock = Callable[[], datetime]


class ResourceService:
    """Creates, reads and updates resources on the shelf, on behalf of a counterparty."""

    def __init__(self, store: ResourceStore, config: SandboxConfig, clock: Clock) -> None:
        self._store = store
        self._config = config
        self._clock = clock

    def create(
        self, kind: str, body: Json, owner: Counterparty, grants: Iterable[tuple[str, str]], id_: str | None = None
    ) -> StoredResource:
        """Keeps a new resource in version 1; the creator owns it, others have what was granted and nothing else."""
        ref = Ref(kind, id_ or str(uuid4()))
        access = AccessRights(owner.guid).with_grants(grants)
        stored = self._with_meta(ref, body, access, 1)
        return self._store.insert(ref, access, encode(stored), index_terms(kind, stored, self._config.own_addresses))

    def replace(self, old: StoredResource, body: Json, grants: Iterable[tuple[str, str]] = ()) -> StoredResource:
        """The whole resource anew, one version higher; what the body does not carry is gone, rights are only added to."""
        before = decode_stored(old.body)
        access = old.access.with_grants(grants)
        stored = self._with_meta(old.ref, body, access, old.version + 1)
        was, now = (index_terms(old.ref.type, body_, self._config.own_addresses) for body_ in (before, stored))
        with self._store.transaction():
            kept = self._store.replace(
                old, old.version + 1, access, encode(stored), removed_terms=was - now, added_terms=now - was
            )
            notice = build_task_notification(kept, before, stored, self._timestamp())
            if notice is not None:
                self._store.add_notification(kept.access.owner, encode(notice))
        return kept

    def add_rights(self, old: StoredResource, grants: Iterable[tuple[str, str]]) -> StoredResource:
        """`$meta-add`: more rights on the same version."""
        access = old.access.with_grants(grants)
        stored = decode_stored(old.body)
        stored["meta"]["security"] = access.security_labels(self._config.base_url)
        return self._store.replace(old, old.version, access, encode(stored))

    def get(self, ref: Ref, caller: Counterparty, right: str = "read") -> StoredResource:
        """The resource when it is there and the caller has the right; else a `Refusal`.

        404 when it is not there. Without the right: 404 for a Binary ("Errors": result document without read right), else
        the configured code. Whoever may not even read gets no other answer to a write.
        """
        kept = self._store.get(ref)
        if kept is None or (ref.type == "Binary" and not kept.access.allows("read", caller.guid)):
            raise HttpError.of(404, "not-found", f"{ref.type}/{ref.id}: there is no such resource, or no right to read it")
        if not kept.access.allows(right, caller.guid):
            raise self._missing_right_error(ref, right)
        return kept

    def find(self, ref: Ref) -> StoredResource | None:
        """The resource, whoever may read it."""
        return self._store.get(ref)

    def _missing_right_error(self, ref: Ref, right: str) -> HttpError:
        code = self._config.rules.no_right_code
        if code == 404:
            return HttpError.of(404, "not-found", f"{ref.type}/{ref.id}: there is no such resource, or no right to read it")
        return HttpError.of(403, "forbidden", f"{ref.type}/{ref.id}: meta.security does not give you the right {right}")

    def _with_meta(self, ref: Ref, body: Json, access: AccessRights, version: int) -> Json:
        given = body.get("meta")
        meta: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
        meta |= {
            "versionId": str(version),
            "lastUpdated": self._timestamp(),
            "security": access.security_labels(self._config.base_url),
        }
        rest = {key: value for key, value in body.items() if key not in {"resourceType", "id", "meta"}}
        return {"resourceType": ref.type, "id": ref.id, "meta": meta, **rest}

    def _timestamp(self) -> str:
        return self.now().isoformat(timespec="milliseconds")

    def now(self) -> datetime:
        """The service's time."""
        return self._clock()
