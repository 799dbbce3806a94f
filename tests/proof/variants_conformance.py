"""Known-bad variants for the proof `conformance`: a fault that breaks the sentence of a row of docs/conformance.md.

The row names the test that has to find it (tests/docs/test_conformance.py holds that). A name begins with the number of its row.
Here are section 1 and the resources of the four basket functions; the other rows are in the modules beside this one.
"""

from __future__ import annotations

from tests.proof.mutants import Mutant

_MAPPER = "unit/fhir/test_lab_order_mapper.py::"
RULE = "unit/rules/test_rule_table.py::test_mutation_violates_exactly_its_rule"
SANDBOX = "integration/lab_sandbox/"
API = "integration/lab_api/test_endpoints.py::"
BUILDER = "unit/fhir/test_report_builder.py::"
CLIENT = "integration/exchange/test_client.py::"
_DELIVERY = "integration/results/test_delivery.py::"
_CATALOGUE = "unit/catalogue/"


def fault(name: str, what: str, file: str, old: str, new: str, test: str) -> Mutant:
    """The variant for the row with whose number its name begins."""
    return Mutant(name=name, what=what, file=file, old=old, new=new, found_by="conformance", tests=(test,))


def row_of(variant: Mutant) -> str:
    """The number of the row whose sentence the variant breaks."""
    return variant.name.split("_")[0]


VARIANTS: tuple[Mutant, ...] = (
    fault(
        "1.1_credentials_for_one_function_alone",
        "forwards three of the four basket functions without the laboratory's credentials",
        "lab_sandbox/basket_proxy.py",
        "        if laboratory.authorization:\n",
        '        if laboratory.authorization and name == "nomenclature":\n',
        f"{SANDBOX}test_endpoints.py::test_basket_functions_forwarded_with_laboratory_credentials",
    ),
    fault(
        "1.2_function_at_another_address",
        "serves one of the four functions at another address",
        "lab_api/app.py",
        'f"{prefix}/preanalytics", endpoints',
        'f"{prefix}/tubes", endpoints',
        f"{API}test_openapi_describes_every_response",
    ),
    fault(
        "1.3_half_the_nomenclature",
        "leaves the last item out of the nomenclature",
        "lab_api/response_cache.py",
        "else PreparedBodies(nomenclature)",
        "else PreparedBodies(lambda contract: nomenclature(contract)[:-1])",
        f"{API}test_nomenclature_lists_items",
    ),
    fault(
        "1.4_time_without_notices",
        "tells the turnaround times without the notices",
        "lab_api/response_cache.py",
        "turnarounds(contract, self._notices, now))",
        "turnarounds(contract, (), now))",
        f"{API}test_eta_revalidated_and_follows_notices",
    ),
    fault(
        "1.5_no_questions",
        "asks no questions for any basket",
        "lab_agent/catalogue/questionnaire.py",
        "return Questionnaire(roots[0] if roots else None)",
        "return Questionnaire(None)",
        f"{API}test_questionnaire_lists_questions",
    ),
    fault(
        "1.6_one_tube",
        "names one tube of those that a basket needs",
        "lab_agent/catalogue/tubes.py",
        "        return tuple(tube for group in self.groups for tube in group.tubes)",
        "        return tuple(tube for group in self.groups for tube in group.tubes)[:1]",
        f"{API}test_preanalytics_lists_tubes",
    ),
    fault(
        "1.7_any_status_polled",
        "asks for orders in any status",
        "lab_agent/settings/exchange.py",
        'order_tasks: str = "fhir/task?status=requested&code=OrderProcessingTask"',
        'order_tasks: str = "fhir/task?code=OrderProcessingTask"',
        "integration/exchange/test_client.py::test_poll_url_matches_interface",
    ),
    fault(
        "1.8_specimens_not_fetched",
        "does not fetch the Specimens of an order",
        "lab_agent/fhir/order_graph.py",
        '            yield from self._parse_references(references_of(body.get("specimen")), {"Specimen"})\n',
        "",
        "unit/fhir/test_order_graph.py::test_fetch_loop_reads_everything_and_ends",
    ),
    fault(
        "1.9_wrong_patient_accepted",
        "takes biomaterial of another patient",
        "lab_agent/rules/specimen.py",
        "patient_key(specimen.subject) != wanted and not is_unusable",
        "patient_key(specimen.subject) is None and not is_unusable",
        RULE,
    ),
    fault(
        "1.10_order_always_cancelled",
        "ends every order as cancelled",
        "lab_agent/workflow/line_lifecycle.py",
        "if not any(completed) else jobs.TASK_COMPLETED if all(completed) else mixed",
        "if any(completed) else jobs.TASK_COMPLETED if all(completed) else mixed",
        f"{_DELIVERY}test_final_report_completes_lines_and_order",
    ),
    fault(
        "1.11_documents_left_out",
        "sends a report without the links to its documents",
        "lab_agent/fhir/report_builder.py",
        '"presentedForm": [form for form in documents if _has_url(form)] or None,',
        '"presentedForm": [form for form in documents if not form] or None,',
        "integration/results/test_document_upload.py::test_documents_arrive_at_stu3_server_as_sent",
    ),
    fault(
        "1.12_no_notification_posted",
        "the sandbox posts no status change",
        "lab_sandbox/notifications.py",
        "        if receiver not in self._running:",
        "        if receiver in self._running:",
        f"{SANDBOX}test_interface_sentences.py::test_status_change_posted_to_address_of_card",
    ),
    fault(
        "1.13_questions_of_one_item",
        "asks the questions of the basket's first item alone",
        "lab_api/endpoints.py",
        "items = [line.item for line in requested.lines]",
        "items = [line.item for line in requested.lines[:1]]",
        "integration/lab_api/test_endpoints.py::test_questionnaire_lists_questions",
    ),
    fault(
        "1.14_contract_lifetime_ignored",
        "lets every contract's nomenclature be cached for a day",
        "lab_api/endpoints.py",
        "lifetime = default if own is None else own",
        "lifetime = default",
        f"{API}test_contract_cache_lifetime_overrides_default",
    ),
    fault(
        "1.16_patient_beside_the_order",
        "leaves the patient in the medical part of an order",
        "lab_agent/serialization/__init__.py",
        '    identity = tree.pop("patient")\n',
        '    identity = dict(tree["patient"])\n',
        "unit/serialization/test_validation.py::test_medical_part_contains_no_patient_data",
    ),
    fault(
        "1.17_global_identifier_lost",
        "gives the laboratory system no global identifier",
        "lab_agent/fhir/lab_order_mapper.py",
        "return OrderPatient(global_identifier=next((link.identifier for link in subjects if link.identifier), None))",
        "return OrderPatient()",
        f"{_MAPPER}test_global_identifier_passed_on",
    ),
    fault(
        "1.18_plain_http_allowed",
        "takes an address without TLS",
        "lab_agent/settings/exchange.py",
        "        if plain and not self.allow_plain_http:",
        "        if plain and self.allow_plain_http:",
        "unit/settings/test_exchange.py::test_plain_http_limited_to_loopback_unless_allowed",
    ),
    fault(
        "1.19_stage_named_production",
        "names production in the template for stage",
        "config/stage.toml",
        'environment = "stage"',
        'environment = "production"',
        "unit/settings/test_shipped_files.py::test_completed_template_is_valid",
    ),
    fault(
        "1.20_version_not_compared",
        "the sandbox replaces whatever version there is",
        "lab_sandbox/updates.py",
        "    if expected != old.version:",
        "    if expected > old.version:",
        "integration/exchange/test_sandbox.py::test_stale_version_detected_by_either_status_code",
    ),
    fault(
        "1.21_one_nomenclature_for_all",
        "gives every contract the nomenclature of the first one",
        "lab_api/response_cache.py",
        "else PreparedBodies(nomenclature)",
        "else PreparedBodies(lambda _: nomenclature(next(iter(catalogue.contracts.values()))))",
        "integration/lab_api/test_endpoints.py::test_each_contract_has_its_own_nomenclature",
    ),
    fault(
        "2.1_field_left_out",
        "leaves a field of the table out of the nomenclature",
        "lab_agent/catalogue/nomenclature.py",
        '        "lab_caption": item.lab_caption,\n',
        "",
        f"{_CATALOGUE}test_turnaround.py::test_nomenclature_has_every_field_in_its_type",
    ),
    fault(
        "2.2_leading_zeros_lost",
        "reads item codes without their leading zeros",
        "lab_agent/catalogue/basket.py",
        'item_id = problems.read_text(raw, "id", f"{where}.id")',
        'item_id = (problems.read_text(raw, "id", f"{where}.id") or "").lstrip("0") or None',
        f"{_CATALOGUE}test_basket.py::test_leading_zeros_kept",
    ),
    fault(
        "2.3_repeat_accepted",
        "takes any item of a basket more than once",
        "lab_agent/catalogue/basket.py",
        "if line.item.allow_multiple_items:",
        "if line.item.id:",
        f"{_CATALOGUE}test_basket.py::test_repeated_item_accepted_only_where_allowed",
    ),
    fault(
        "2.4_laboratory_code_lost",
        "gives the laboratory system no code of its own",
        "lab_agent/fhir/lab_order_mapper.py",
        "lab_code=catalogue.lab_code(contract, item) if catalogue else None,",
        "lab_code=None,",
        f"{_MAPPER}test_order_mapped_to_laboratory_terms",
    ),
    fault(
        "2.5_preparation_in_one_string",
        "gives the preparation of the patient as one string",
        "lab_agent/catalogue/nomenclature.py",
        "list(item.patient_preparation)",
        '"; ".join(item.patient_preparation)',
        f"{_CATALOGUE}test_turnaround.py::test_nomenclature_has_every_field_in_its_type",
    ),
    fault(
        "2.6_several_types_accepted",
        "takes several types for an item that takes one",
        "lab_agent/catalogue/specimen_choice.py",
        "if len(request.specimen_codes) > 1 and not item.multiple_specimen:",
        "if len(request.specimen_codes) > 9 and not item.multiple_specimen:",
        f"{_CATALOGUE}test_basket.py::test_several_specimen_types_need_multiple_specimen_item",
    ),
    fault(
        "2.7_required_types_left_out",
        "leaves the required types out of pre-analytics",
        "lab_agent/catalogue/preanalytics.py",
        "            for required in line.item.required:\n                yield SpecimenNeed(required, line.guids)\n",
        "            continue\n",
        f"{_CATALOGUE}test_preanalytics.py::test_required_specimen_types_added",
    ),
    fault(
        "2.8_body_site_left_out",
        "leaves a field out of a specimen option",
        "lab_agent/catalogue/nomenclature.py",
        '        "bodysite_code": option.bodysite_code,\n',
        "",
        f"{_CATALOGUE}test_turnaround.py::test_nomenclature_has_every_field_in_its_type",
    ),
    fault(
        "2.9_eta_without_caption",
        "leaves the caption out of an item of eta",
        "lab_agent/catalogue/turnaround.py",
        '            "caption": self.caption,\n',
        "",
        f"{_CATALOGUE}test_turnaround.py::test_available_test_has_no_period_or_delay",
    ),
    fault(
        "2.10_delay_in_minutes",
        "gives a delay another unit",
        "lab_agent/catalogue/turnaround.py",
        '"unit": "h"',
        '"unit": "min"',
        f"{_CATALOGUE}test_turnaround.py::test_delayed_test_has_period_and_delay",
    ),
    fault(
        "2.11_stop_has_a_delay",
        "fills the delay of a test that is stopped",
        "lab_agent/catalogue/turnaround.py",
        "if isinstance(self.status, Delayed) else None",
        'if isinstance(self.status, Delayed) else {"value": "0", "unit": "h"}',
        f"{_CATALOGUE}test_turnaround.py::test_stopped_test_has_only_period",
    ),
    fault(
        "2.12_available_has_a_delay",
        "fills the delay of a test that can be ordered as usual",
        "lab_agent/catalogue/turnaround.py",
        "if isinstance(self.status, Delayed) else None",
        'if isinstance(self.status, Delayed) else {"value": "0", "unit": "h"}',
        f"{_CATALOGUE}test_turnaround.py::test_available_test_has_no_period_or_delay",
    ),
    fault(
        "2.13_questionnaire_is_a_draft",
        "calls the questionnaire a draft",
        "lab_agent/catalogue/questionnaire.py",
        '"status": "active"}',
        '"status": "draft"}',
        "unit/catalogue/test_questionnaire.py::test_questionnaire_json_matches_interface",
    ),
    fault(
        "2.14_question_without_repeats",
        "leaves a field out of the questions",
        "lab_agent/catalogue/questionnaire.py",
        '            "repeats": question.repeats,\n',
        "",
        f"{_CATALOGUE}test_questionnaire.py::test_questionnaire_json_matches_interface",
    ),
    fault(
        "2.15_last_item_decides",
        "requires an answer only where the last of the items does",
        "lab_agent/catalogue/questionnaire.py",
        "asked.required or required_by_link_id.get(asked.link_id, False)",
        "asked.required",
        f"{_CATALOGUE}test_questionnaire.py::test_duplicate_questions_merged_and_required_wins",
    ),
    fault(
        "2.16_item_without_questions",
        "sends an item where there are no questions",
        "lab_agent/catalogue/questionnaire.py",
        "return wire if self.root is None else",
        'return {**wire, "item": None} if self.root is None else',
        f"{_CATALOGUE}test_questionnaire.py::test_no_questions_give_only_type_and_status",
    ),
    fault(
        "2.17_code_as_text",
        "gives the type of biomaterial as text",
        "lab_agent/catalogue/tubes.py",
        '"code": self.kind.specimen_code,',
        '"code": str(self.kind.specimen_code),',
        f"{_CATALOGUE}test_preanalytics.py::test_tube_json_matches_documented_types",
    ),
    fault(
        "2.18_no_label",
        "gives a container no barcode",
        "lab_agent/catalogue/tubes.py",
        '"label": label,',
        '"label": None,',
        f"{_CATALOGUE}test_preanalytics.py::test_tube_json_matches_documented_types",
    ),
    fault(
        "2.19_first_guid_alone",
        "names one of the basket items that use a specimen",
        "lab_agent/catalogue/tubes.py",
        '"guids": list(self.guids),',
        '"guids": list(self.guids[:1]),',
        f"{_CATALOGUE}test_preanalytics.py::test_each_guid_covered_and_no_other_appears",
    ),
    fault(
        "2.20_extension_not_expected",
        "takes a Specimen without its extension",
        "lab_agent/rules/specimen.py",
        "if fits != [True]:",
        "if fits not in ([True], []):",
        RULE,
    ),
)
