"""What the pages leave in the audit: sign-ins, looks and decisions, each with its account; and never a patient."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import text

from lab_agent.accounts import Role
from lab_agent.domain.audit import AuditAction
from lab_agent.domain.job_records import JobKind, ServiceMessage
from lab_agent.domain.refused_messages import RefusedContent
from lab_agent.errors import StoreFault, StoreUnreachableError
from lab_agent.store.audit_verification import verify_audit
from lab_agent.workflow.refused_messages import record_refusal
from tests.harness import status_pages
from tests.integration.status.conftest import GOOD, HELD, PASSWORD, SECRETS, post

CANARIES = (*SECRETS, "Sidorova", "PID|1||4711")
NOTE = "spoke to Sidorova about Petrova"


async def test_sign_ins_are_recorded_with_address(pages: Any):
    client = await pages.signed_in_client(Role.OPERATOR)
    await client.post("/sign-in", data={"name": "operator", "password": "wrong"})
    await client.post("/sign-in", data={"name": "my password", "password": "wrong"})
    await post(client, "/sign-out")
    found = await pages.records(AuditAction.SIGNED_IN, AuditAction.SIGN_IN_REJECTED, AuditAction.SIGNED_OUT)
    assert [(each.action, each.channel, each.actor, each.subject, each.origin) for each in found] == [
        ("signed_in", "page", "operator", "operator", "127.0.0.1"),
        ("sign_in_rejected", "page", "", "operator", "127.0.0.1"),
        ("sign_in_rejected", "page", "", "", "127.0.0.1"),  # people type passwords into the field of the name
        ("signed_out", "page", "operator", "operator", ""),
    ]


async def test_sign_in_works_while_nothing_can_be_written(pages: Any, monkeypatch: pytest.MonkeyPatch):
    async def refuse(work: Any) -> Any:
        raise StoreUnreachableError("its disk is full", StoreFault.DISK_FULL)

    monkeypatch.setattr(pages.context.store, "run", refuse)
    answer = await pages.new_client().post("/sign-in", data={"name": "operator", "password": PASSWORD})
    assert answer.status_code == 303


async def test_result_is_shown_to_nobody_unrecorded(pages: Any, monkeypatch: pytest.MonkeyPatch):
    await status_pages.add_orders(pages)
    key = await status_pages.unmatched_result(pages)
    client = await pages.signed_in_client(Role.VIEWER)
    assert (await client.get(f"/results/{key}")).status_code == 200
    (look,) = await pages.records(AuditAction.RESULT_SHOWN)
    assert (look.actor, look.subject, look.channel) == ("viewer", key, "page")

    async def refuse(work: Any) -> Any:
        raise StoreUnreachableError("its disk is full", StoreFault.DISK_FULL)

    monkeypatch.setattr(pages.context.store, "run", refuse)
    assert (await client.get(f"/results/{key}")).status_code == 503


async def test_words_of_the_service_are_a_look(seeded: Any):
    client = await seeded.signed_in_client(Role.OPERATOR)
    await client.get(f"/orders/{GOOD}")
    assert await seeded.records(AuditAction.SERVICE_WORDS_SHOWN) == []
    said = ServiceMessage(at=datetime.now(UTC), text="Petrova is unknown")
    await seeded.write(lambda uow: uow.vault.save_service_message(1, GOOD, said))
    await client.get(f"/orders/{GOOD}")
    (look,) = await seeded.records(AuditAction.SERVICE_WORDS_SHOWN)
    assert (look.actor, look.subject) == ("operator", GOOD)


async def test_decisions_name_account_subject_and_job(seeded: Any):
    client = await seeded.signed_in_client(Role.OPERATOR)
    job = await seeded.get_job(JobKind.DELIVER_REPORT)
    other = await seeded.get_job(JobKind.UPDATE_LINE_TASK)
    await post(client, f"/jobs/{job.id}/retry")
    await post(client, f"/jobs/{other.id}/dismiss", note=NOTE)
    await post(client, f"/orders/{HELD}/retry")
    found = await seeded.records(AuditAction.JOB_RETRIED, AuditAction.JOB_DISMISSED)
    assert [(each.action, each.actor, each.subject) for each in found][1:] == [
        ("job_dismissed", "operator", GOOD),
        ("job_retried", "operator", HELD),
    ]
    assert f'"job":{other.id}' in found[1].details
    assert [each.note_digest is not None for each in found] == [False, True, False]


async def test_audit_names_no_patient_and_is_whole(seeded: Any):
    client = await seeded.signed_in_client(Role.OPERATOR)
    content = RefusedContent(message_id="Petrova.hl7", raw=b"PID|1||4711||Petrova^Anna")
    now = seeded.clock.now()
    await seeded.write(lambda uow: record_refusal(uow, "folder", content, "the file is no table", now))
    (message,), _ = await seeded.context.store.run(lambda uow: uow.refused_messages.list(limit=1))
    await client.get(f"/refused/{message.key}")
    await post(client, f"/refused/{message.key}/raw")
    await post(client, f"/refused/{message.key}/dismiss", note=NOTE)
    job = await seeded.get_job(JobKind.UPDATE_LINE_TASK)
    await post(client, f"/jobs/{job.id}/dismiss", note=NOTE)
    found = await seeded.records()
    actions = {each.action for each in found}
    assert {"sender_name_shown", "raw_message_shown", "refused_dismissed", "job_dismissed"} <= actions

    def dump(connection: Any) -> str:
        tables = ("audit_records", "audit_notes", "audit_head")
        return repr([connection.execute(text(f"SELECT * FROM {name}")).all() for name in tables])

    stored = await seeded.context.store.read(dump)
    assert [canary for canary in CANARIES if canary in stored] == []
    verdict = await seeded.context.store.read(lambda connection: verify_audit(connection, seeded.context.cipher, None))
    assert (verdict.broken, verdict.records) == (None, len(found))
