"""The values of the codes: stored and shown, they change only with a migration, or with a note in the changelog."""

from __future__ import annotations

from enum import StrEnum

import pytest

from lab_agent.domain.activity import Measure
from lab_agent.domain.api_refusals import RefusalReason
from lab_agent.domain.audit import AuditAction, AuditChannel
from lab_agent.domain.code_systems import SystemMatch
from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.lab_messages import ObservationStatus, ReportStatus
from lab_agent.domain.order_holds import HoldCause
from lab_agent.domain.patient_identity import PatientMatch
from lab_agent.domain.programs import ProgramKind
from lab_agent.domain.refused_messages import RefusedState
from lab_agent.domain.report_records import HoldReason
from lab_agent.domain.reported_patients import PatientField
from lab_agent.domain.restoration import RestoreSign
from lab_agent.domain.state_machines import JobState, LineState, OrderState, ReportState, WorkOrderState

VALUES: dict[type[StrEnum], str] = {
    Measure: "orders_seen orders_handed_over results_received results_delivered failures exchange_calls",
    RefusalReason: """
        no_credentials wrong_credentials token_expired token_revoked unknown_contract too_many_requests invalid_request
    """,
    AuditChannel: "page command agent api",
    AuditAction: """
        signed_in sign_in_rejected signed_out result_shown service_words_shown raw_message_shown sender_name_shown
        order_rejected order_released order_reassessed line_rejected line_accepted job_retried job_dismissed job_marked_done
        rule_released result_matched result_released result_dismissed result_uploaded_again refused_replayed
        refused_dismissed settings_changed catalogue_activated
        notice_announced notices_lifted catalogue_exported support_bundle_written audit_broken
        audit_exported audit_notes_shown backup_made backup_restored restore_released keys_rotated data_purged audit_purged
        database_compacted database_copied patient_searched patient_erased order_erased result_erased refused_erased
        user_added user_removed
        user_password_changed user_role_changed user_reveal_changed session_ended patient_shown document_shown orders_exported
        sign_in_refreshed sign_in_forgotten adapter_paused adapter_resumed api_token_created api_token_revoked
    """,
    SystemMatch: "exact spelled_differently missing foreign",
    FailureCause: """
        sign_in service_unavailable service_asks_to_wait outcome_unknown invalid_response read_rejected task_unreadable
        foreign_link write_rejected no_right several_matches newer_on_service lis_unavailable lis_disk_full
        lis_outcome_unknown lis_rejected lis_not_loaded internal_error other
    """,
    JobKind: """
        fetch_order submit_order cancel_at_lis match_report deliver_report update_line_task update_order_task
    """,
    ReportStatus: "registered partial preliminary final",
    ObservationStatus: "registered preliminary final amended",
    HoldCause: """
        unreadable makes_service_pause lines_differ search_not_filtered not_requested offered_again in_other_order no_contract
        no_route rule_stopped
    """,
    PatientMatch: "same different unknown",
    ProgramKind: "agent api",
    RefusedState: "waiting replayed dismissed",
    HoldReason: """
        unexpected question document_mismatch line_has_result lines_ended defect waits_for_version patient_mismatch
        conflicting_version superseded_by_newer
    """,
    PatientField: "name birth_date sex identifier",
    RestoreSign: "command older_than_mark other_database own_reports",
    OrderState: "seen fetched held handed_over reported rejected withdrawn closed",
    WorkOrderState: "accepted handed_over cancelled",
    LineState: "requested held rejected accepted resulted completed cancelled withdrawn",
    ReportState: "received matched unmatched unmapped held delivered superseded dismissed",
    JobState: "due in_flight outcome_unknown needs_review dead_letter done obsolete dismissed",
}
"""Of each enumeration, its values in order; each member is named as its value."""


@pytest.mark.parametrize("codes", VALUES, ids=lambda each: each.__name__)
def test_values_of_codes_stay_as_stored(codes: type[StrEnum]) -> None:
    assert [each.value.replace(" ", "_") for each in codes] == VALUES[codes].split()
    assert [each.name.lower() for each in codes] == VALUES[codes].split()
