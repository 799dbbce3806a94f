"""The bench, opened and closed; and what `make test` runs of this folder: each bench takes a quarter of a second."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.harness.results import ResultsBench, open_bench

QUICK = {
    "test_result_before_its_order_follows_it": 999,
    "test_last_message_is_what_clinic_reads": 999,
    "test_door_reads_each_name_of_an_order_and_messages_of_one_name": 999,
    "test_final_report_completes_lines_and_order": 1,
    "test_order_with_mixed_lines_ends_by_the_setting": 1,
    "test_results_write_only_uploads_and_tasks": 1,
    "test_preliminary_final_corrected_update_one_resource": 1,
    "test_lost_response_writes_nothing_twice": 2,
    "test_own_rights_granted_only_where_set": 1,
    "test_restored_version_is_not_written_over_the_later_one": 1,
    "test_several_reports_for_line_with_extra_test": 1,
    "test_not_performed_lines_carry_their_reasons": 1,
    "test_refused_observation_hides_no_answer_to_others": 1,
    "test_unknown_outcome_is_settled_first": 1,
    "test_lost_reply_amends_nothing_where_service_adds": 1,
    "test_second_version_comes_to": 4,
    "test_versions_go_one_at_a_time_and_lose_nothing": 10,
    "test_version_that_is_stuck_loses_nothing": 3,
    "test_version_matched_too_early_goes_in_its_turn": 1,
    "test_promises_hold_for_versions_in_any_order": 1,
    "test_line_that_has_ended_stays_so": 4,
    "test_first_report_for_withdrawn_order_held_then_released": 1,
    "test_mapping_release_previews_then_releases_reports": 1,
    "test_operator_decides_about_one_result": 2,
    "test_decision_on_changed_report_is_rejected": 1,
    "test_dismissal_of_completing_report_reopens_line": 1,
    "test_order_wide_document_has_link_and_lines": 1,
    "test_results_of_another_patient_are_released_one_by_one_only": 1,
    "test_every_reason_has_sentence_and_next_step": 1,
    "test_implausible_report_is_held_then_released": 1,
    "test_released_document_uses_detected_content_type": 1,
    "test_undeliverable_document_cannot_be_released": 1,
    "test_code_of_other_system_is_held_without_tables": 1,
    "test_other_patient_is_held_and_released_for_this_order": 1,
    "test_result_naming_another_patient_is_held": 1,
    "test_patient_is_asked_about_alone_and_anew": 1,
    "test_documents_arrive_at_stu3_server_as_sent": 1,
    "test_spoilt_document_is_told_and_sent_again_once_mended": 1,
    "test_document_is_served_under_unguessable_url": 1,
    "test_document_without_its_address_is_always_404": 1,
    "test_most_specific_accept_range_decides": 9,
    "test_held_reports_keep_one_alert_open": 1,
    "test_dead_lettered_delivery_keeps_alert_open_until_decided": 1,
    "test_isolates_reach_clinic_as_one_report_each": 999,
    "test_quantity_reaches_clinic_with_its_unit": 2,
    "test_upload_plan_is_valid_and_keeps_values": 1,
    "test_every_value_type_round_trips_exactly": 1,
    "test_references_are_written_as_the_order_wrote_them": 1,
    "test_each_deviation_is_real_and_seen": 9,
    "test_no_other_violation_passes": 9,
    "test_value_on_shared_tube_goes_where_ordered": 999,
    "test_report_stays_with_its_order": 999,
    "test_later_message_of_earlier_time_is_not_dropped": 999,
    "test_refused_row_is_replayed_without_repeating_the_good_one": 1,
}
"""Of each test, how many of its cases; the others are slow."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen = Counter[str]()
    for item in items:
        if item.path.parent == Path(__file__).parent:
            name = item.name.partition("[")[0]
            seen[name] += 1
            if seen[name] > QUICK.get(name, 0):
                item.add_marker(pytest.mark.slow)


@pytest.fixture
async def bench() -> AsyncIterator[ResultsBench]:
    """One order of three lines, handed over; documents are uploaded, no mapping tables."""
    async with open_bench() as opened:
        yield opened
