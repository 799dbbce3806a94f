"""Known-bad variants for the proof `conformance`: a fault that breaks the sentence of a row of docs/conformance.md.

The row names the test that has to find it (tests/docs/test_conformance.py holds that). A name begins with the number of its row.
Sections 1 and 2 are here, the others in variants_conformance_calls.py.
"""

from __future__ import annotations

from tests.proof.mutants import Mutant

_BUILDER = "unit/fhir/test_report_builder.py::"
_MAPPER = "unit/fhir/test_lab_order_mapper.py::"
_RULE = "unit/rules/test_rule_table.py::test_mutation_violates_exactly_its_rule"
_SANDBOX = "integration/lab_sandbox/"
_API = "integration/lab_api/test_endpoints.py::"
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
        f"{_SANDBOX}test_endpoints.py::test_basket_functions_forwarded_with_laboratory_credentials",
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
        "1.13_questions_of_one_item",
        "asks the questions of the basket's first item alone",
        "lab_api/endpoints.py",
        "items = [line.item for line in requested.lines]",
        "items = [line.item for line in requested.lines[:1]]",
        "integration/lab_api/test_endpoints.py::test_questionnaire_lists_questions",
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
        "2.13_questionnaire_is_a_draft",
        "calls the questionnaire a draft",
        "lab_agent/catalogue/questionnaire.py",
        '"status": "active"}',
        '"status": "draft"}',
        "unit/catalogue/test_questionnaire.py::test_questionnaire_json_matches_interface",
    ),
    fault(
        "2.41_options_lost",
        "gives the laboratory system no notification options",
        "lab_agent/fhir/lab_order_mapper.py",
        "notifications=_notifications(received, systems),",
        "notifications=(),",
        "unit/fhir/test_lab_order_mapper.py::test_order_mapped_to_laboratory_terms",
    ),
    fault(
        "2.41_options_not_in_the_message",
        "leaves the notification options out of an HL7 v2 order",
        "lab_agent/lis/hl7v2/orders/templates.py",
        "for option in order.notifications}",
        "for option in ()}",
        "unit/lis/hl7v2/test_order_builder.py::test_notification_options_are_notes_of_the_patient",
    ),
    fault(
        "2.61_one_identifier",
        "gives a report its own identifier alone",
        "lab_agent/fhir/report_builder.py",
        "for each in (identifier, order_identifier(context.order_system, context.part_key))],",
        "for each in (identifier,)],",
        f"{_BUILDER}test_resources_match_interface",
    ),
    fault(
        "2.66_first_line_alone",
        "names the first of the lines that a report with values covers",
        "lab_agent/fhir/report_builder.py",
        '"basedOn": [_request_reference(line, context) for line in lines],',
        '"basedOn": [_request_reference(line, context) for line in (lines[:1] if report.observations else lines)],',
        f"{_BUILDER}test_report_lists_every_line_that_it_covers",
    ),
    fault(
        "2.73_attachment_under_another_name",
        "writes a document that is a value under a name that there is not",
        "lab_agent/fhir/value_writer.py",
        '"valueAttachment", write_attachment',
        '"valueDocument", write_attachment',
        "integration/results/test_round_trip.py::test_every_value_type_round_trips_exactly",
    ),
    fault(
        "2.75_text_of_the_test_lost",
        "gives the laboratory system no words for a test",
        "lab_agent/fhir/lab_order_mapper.py",
        "text=request.code.text,",
        "text=None,",
        "unit/fhir/test_lab_order_mapper.py::test_order_mapped_to_laboratory_terms",
    ),
)
