"""Checked creation and replacement of single resources, with If-None-Exist and If-Match."""

import re
from collections.abc import Iterable

from lab_sandbox.access_rights import parse_grants
from lab_sandbox.config import Counterparty
from lab_sandbox.documents import check_binary
from lab_sandbox.errors import HttpError, Problems
from lab_sandbox.exact_json import Json, decode_stored
from lab_sandbox.path_aliases import CREATED_BY_POST
from lab_sandbox.references import Ref, is_local_reference, iter_references, parse_reference
from lab_sandbox.resource_rules import check_order_resource, check_patient, check_task_update
from lab_sandbox.resource_store import StoredResource
from lab_sandbox.rule_helpers import check_arrays, check_reference_targets
from lab_sandbox.search import parse_if_none_exist
from lab_sandbox.service import Service
from lab_sandbox.stu3_rules import check_stu3
from lab_sandbox.upload_rules import check_observation, check_report, check_report_patient

_IF_MATCH_PATTERN = re.compile(r'\s*W/"([0-9]{1,15})"\s*')

_ID_PATTERN = re.compile(r"[A-Za-z0-9.-]{1,64}")


def find_existing(service: Service, kind: str, header: str | None, caller: Counterparty) -> StoredResource | None:
    """The resource that matches If-None-Exist, or None; `HttpError` (412) if several match ("Errors").

    It matches what the caller made, too, even without the right to read it: otherwise a repeated upload would be doubled.
    """
    if header is None:
        return None
    criteria = parse_if_none_exist(kind, header, service.config)
    found = service.store.find(kind, criteria, lambda access: service.resources.may_refer_to(access, caller), limit=2)
    if len(found) > 1:
        raise HttpError.of(412, "multiple-matches", f"If-None-Exist: more than one {kind} matches")
    return found[0] if found else None


def create(service: Service, kind: str, body: Json, caller: Counterparty, id_: str | None = None) -> StoredResource:
    """Stores a new resource owned by the caller; `HttpError` lists what is wrong with it."""
    if kind not in CREATED_BY_POST:
        raise HttpError.of(
            405, "not-supported", f"{kind}: cannot be created alone; send an order as one bundle", {"Allow": "GET, PUT"}
        )
    if caller.kind != CREATED_BY_POST[kind]:
        raise HttpError.of(403, "forbidden", f"{kind}: is created by a {CREATED_BY_POST[kind]}, not by a {caller.kind}")
    if id_ is not None and not _ID_PATTERN.fullmatch(id_):
        raise HttpError.of(400, "invalid", f"{kind}.id: must be up to 64 letters, digits, dots and hyphens, not {id_}")
    if id_ is None and "id" in body:
        raise HttpError.of(400, "not-supported", f"{kind}.id: POST with a client-chosen id is not supported here")
    problems = Problems(frozenset(service.config.rules.off))
    _check_body(kind, body, service, problems, is_new=True)
    _check_references(kind, iter_references(body), service, caller, problems)
    grants = parse_grants(body.get("meta"), service.config, problems, f"{kind}.meta")
    partners = {party.guid for party in service.config.counterparties if party.kind == "partner"}
    if kind in {"DiagnosticReport", "Observation"} and not {("read", guid) for guid in partners} & grants:
        problems.add(f"{kind}.meta.security", "upload-rights", "required, read for the counterparty", "required")
    problems.raise_if_any()
    return service.resources.create(kind, body, caller, grants, id_)


def update(service: Service, ref: Ref, body: Json, caller: Counterparty, if_match: str | None) -> StoredResource:
    """Replaces the whole resource if the version in If-Match is current."""
    if ref.type == "Contract":
        raise HttpError.of(405, "not-supported", "Contract: read-only, contracts are managed by the service", {"Allow": "GET"})
    old = service.resources.get(ref, caller, "updatebody")
    expected = _parse_if_match(if_match)
    if expected != old.version:
        text = f"If-Match: version {expected} is out of date, the current one is {old.version} (rule stale-version)"
        raise HttpError.of(service.config.rules.stale_code, "conflict", text, {"ETag": old.etag()})
    if "id" in body and body["id"] != ref.id:
        raise HttpError.of(400, "invalid", f"{ref.type}.id: {body['id']!r} differs from the id in the address, {ref.id}")
    problems = Problems(frozenset(service.config.rules.off))
    _check_body(ref.type, body, service, problems, is_new=False)
    before, is_owner = decode_stored(old.body), old.access.owner == caller.guid
    if ref.type == "Task":
        check_task_update(before, body, service.config, is_owner=is_owner, problems=problems)
    if ref.type == "ProcedureRequest" and not is_owner:
        problems.add(ref.type, "line-edited", "is not edited by the receiving side: status is carried by Task", "business-rule")
    known = {text for _, text in iter_references(before)}
    new_references = [(path, text) for path, text in iter_references(body) if text not in known]
    _check_references(ref.type, new_references, service, caller, problems)
    grants = parse_grants(body.get("meta"), service.config, problems, f"{ref.type}.meta") if is_owner else set()
    problems.raise_if_any()
    return service.resources.replace(old, body, grants)


def _check_body(kind: str, body: Json, service: Service, problems: Problems, *, is_new: bool) -> None:
    """Checks the rules of a single resource."""
    own = service.config.own_addresses
    check_arrays(kind, body, kind, problems)
    if service.config.strict:
        check_stu3(kind, body, kind, own, problems)
    check_reference_targets(kind, body, kind, lambda text: ref.type if (ref := parse_reference(text, own)) else None, problems)
    check_order_resource(kind, body, kind, service.config, problems)
    if kind == "Patient":
        check_patient(body, problems, is_new=is_new)
    elif kind == "Observation":
        check_observation(body, problems)
    elif kind == "DiagnosticReport":
        check_report(body, service.config.system("nomenclature"), problems)
        check_report_patient(body, service.resources, service.config, problems)
    elif kind == "Binary":
        check_binary(body, problems)


def _check_references(
    kind: str, found: Iterable[tuple[str, str]], service: Service, caller: Counterparty, problems: Problems
) -> None:
    named = [(f"{kind}.{path}", text) for path, text in found if not text.startswith("#")]
    for element, text in named:
        if is_local_reference(text):
            problems.add(element, "local-reference", f"{text} is local to a bundle, and this is a single resource")
    service.resources.check_references([one for one in named if not is_local_reference(one[1])], caller, problems)


def _parse_if_match(header: str | None) -> int:
    if header is None:
        raise HttpError.of(428, "required", 'If-Match: required on PUT, as W/"<version>" from the ETag header')
    found = _IF_MATCH_PATTERN.fullmatch(header)
    if found is None:
        raise HttpError.of(400, "invalid", f'If-Match: must have the form W/"<version>", not {header}')
    return int(found[1])
