"""Creates, reads and replaces resources according to access rights, and notifies owners of Task status changes."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any
from uuid import uuid4

from lab_sandbox.access_rights import AccessRights
from lab_sandbox.config import Counterparty, SandboxConfig
from lab_sandbox.errors import HttpError, Problems
from lab_sandbox.exact_json import Json, decode_stored, encode
from lab_sandbox.notifications import NotificationSender
from lab_sandbox.references import Ref, parse_reference, respell_references
from lab_sandbox.resource_store import ResourceStore, StoredResource
from lab_sandbox.search_index import index_terms
from lab_sandbox.stu3_rules import drop_empty

Clock = Callable[[], datetime]


class ResourceService:
    """Stores and reads resources on behalf of a counterparty."""

    def __init__(self, store: ResourceStore, config: SandboxConfig, clock: Clock, notifications: NotificationSender) -> None:
        self._store = store
        self._config = config
        self._clock = clock
        self._notifications = notifications

    def create(
        self, kind: str, body: Json, owner: Counterparty, grants: Iterable[tuple[str, str]], id_: str | None = None
    ) -> StoredResource:
        """Stores a new resource in version 1; the creator owns it, others have only the granted rights."""
        ref = Ref(kind, id_ or str(uuid4()))
        access = AccessRights(owner.guid).with_grants(grants)
        resource = self._with_meta(ref, body, access, 1)
        return self._store.insert(ref, access, encode(resource), index_terms(kind, resource, self._config.own_addresses))

    def replace(self, old: StoredResource, body: Json, grants: Iterable[tuple[str, str]] = ()) -> StoredResource:
        """Replaces the whole resource under the next version; fields missing in the body are dropped, rights only added."""
        before = decode_stored(old.body)
        access = old.access.with_grants(grants)
        after = self._with_meta(old.ref, body, access, old.version + 1)
        old_terms, new_terms = (index_terms(old.ref.type, one, self._config.own_addresses) for one in (before, after))
        removed, added = old_terms - new_terms, new_terms - old_terms
        with self._store.transaction():
            stored = self._store.replace(old, old.version + 1, access, encode(after), removed_terms=removed, added_terms=added)
            self._notifications.add(stored, before, after, self._timestamp())
        return stored

    def add_rights(self, old: StoredResource, grants: Iterable[tuple[str, str]]) -> StoredResource:
        """Adds rights to the same version (`$meta-add`)."""
        access = old.access.with_grants(grants)
        resource = decode_stored(old.body)
        resource["meta"]["security"] = access.security_labels(self._config.base_url)
        return self._store.replace(old, old.version, access, encode(resource))

    def delete(self, old: StoredResource) -> None:
        """Deletes the resource: a later read is answered with 410."""
        self._store.delete(old, index_terms(old.ref.type, decode_stored(old.body), self._config.own_addresses))

    def get(self, ref: Ref, caller: Counterparty, right: str = "read") -> StoredResource:
        """The resource, if it exists and the caller has the right; else `HttpError`.

        410 if it was deleted, 404 if it does not exist, and for a Binary without the right ("Errors": result document without
        read right); else the configured status. A caller who may not read gets the same answer to a write.
        """
        stored = self._store.get(ref)
        if stored is None and self._store.is_deleted(ref):
            raise HttpError.of(410, "deleted", f"{ref.type}/{ref.id}: was deleted")
        if stored is None or (ref.type == "Binary" and not self.allows(stored.access, "read", caller)):
            raise _not_found(ref)
        if not self.allows(stored.access, right, caller):
            is_hidden = self._config.rules.no_right_code == 404 and not self.allows(stored.access, "read", caller)
            raise _not_found(ref) if is_hidden else missing_right_error(ref, right)
        return stored

    def allows(self, access: AccessRights, right: str, caller: Counterparty) -> bool:
        """Whether the caller has the right. A creator has others than `owner` as configured, and a partner never reads unasked.

        "Create patient": the partner needs the read right to fetch the patient.
        """
        must_be_granted = caller.kind == "partner" and right in {"read", "readhistory"}
        return access.allows(right, caller.guid, creator_rights=self._config.rules.creator_rights and not must_be_granted)

    def may_refer_to(self, access: AccessRights, caller: Counterparty) -> bool:
        """Whether the caller knows the resource: it made it, or may read it."""
        return access.owner == caller.guid or self.allows(access, "read", caller)

    def check_references(self, found: Iterable[tuple[str, str]], caller: Counterparty, problems: Problems) -> None:
        """Reports references (element and text) that lead nowhere, or to what the caller neither made nor may read."""
        for element, text in found:
            ref = parse_reference(text, self._config.own_addresses)
            stored = self.find(ref) if ref else None
            if stored is None:
                problems.add(element, "reference-known", f"{text} is not a resource of this service", "not-found")
            elif not self.may_refer_to(stored.access, caller):
                problems.add(element, "reference-right", f"you have no right to read {text}", "forbidden")

    def find(self, ref: Ref) -> StoredResource | None:
        """The resource, without a check of rights."""
        return self._store.get(ref)

    def now(self) -> datetime:
        """The service's time."""
        return self._clock()

    def _with_meta(self, ref: Ref, body: Json, access: AccessRights, version: int) -> Json:
        given = body.get("meta")
        meta: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
        meta |= {
            "versionId": str(version),
            "lastUpdated": self._timestamp(),
            "security": access.security_labels(self._config.base_url),
        }
        rest = {key: value for key, value in body.items() if key not in {"resourceType", "id", "meta"}}
        if self._config.strict:
            rest = drop_empty(respell_references(rest, self._config.own_addresses, lambda one: one.format("canonical")))
        return {"resourceType": ref.type, "id": ref.id, "meta": meta, **rest}

    def _timestamp(self) -> str:
        return self.now().isoformat(timespec="milliseconds")


def _not_found(ref: Ref) -> HttpError:
    return HttpError.of(404, "not-found", f"{ref.type}/{ref.id}: does not exist, or you have no right to read it")


def missing_right_error(ref: Ref, right: str) -> HttpError:
    """403: the caller lacks a right."""
    return HttpError.of(403, "forbidden", f"{ref.type}/{ref.id}: meta.security does not grant you {right}")
