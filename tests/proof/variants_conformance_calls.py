"""Known-bad variants for the proof `conformance`: rows of sections 3 to 9, on states, calls, sign-in, errors and versions."""

from __future__ import annotations

from tests.proof.mutants import Mutant
from tests.proof.variants_conformance import fault

_BUILDER = "unit/fhir/test_report_builder.py::"
_RULE = "unit/rules/test_rule_table.py::test_mutation_violates_exactly_its_rule"
_SANDBOX = "integration/lab_sandbox/"
_API = "integration/lab_api/test_endpoints.py::"
_CLIENT = "integration/exchange/test_client.py::"
_BASKET = "unit/catalogue/test_basket.py::"

VARIANTS: tuple[Mutant, ...] = (
    fault(
        "4.10_patient_refused",
        "lets nobody but its owner read a Patient",
        "lab_sandbox/fhir_routes.py",
        "stored = service.resources.get(Ref(known_type(resource), id_), authenticate_caller(request, service))\n"
        '        if stored.ref.type == "Binary":\n',
        "stored = service.resources.get(\n"
        "            Ref(known_type(resource), id_),\n"
        "            authenticate_caller(request, service),\n"
        '            "owner" if resource == "Patient" else "read",\n'
        "        )\n"
        '        if stored.ref.type == "Binary":\n',
        f"{_SANDBOX}test_endpoints.py::test_laboratory_reads_patient_of_order",
    ),
    fault(
        "4.11_read_without_etag",
        "answers a read without the ETag",
        "lab_sandbox/http_helpers.py",
        '{"ETag": stored.etag(), **(headers or {})}',
        "{**(headers or {})}",
        f"{_SANDBOX}test_endpoints.py::test_read_resources_of_order",
    ),
    fault(
        "4.35_read_without_etag",
        "answers a read without the ETag",
        "lab_sandbox/http_helpers.py",
        '{"ETag": stored.etag(), **(headers or {})}',
        "{**(headers or {})}",
        f"{_SANDBOX}test_golden_files.py::test_read_returns_resource_as_created",
    ),
    fault(
        "4.35_creation_without_etag",
        "answers a POST without the ETag",
        "lab_sandbox/resource_responses.py",
        "    return resource_response(stored, status, headers)\n",
        '    answer = resource_response(stored, status, headers)\n    del answer.headers["etag"]\n    return answer\n',
        f"{_SANDBOX}test_updates.py::test_created_patient_etag_allows_update_without_read",
    ),
    fault(
        "4.42_first_line_alone",
        "names the first line of all that a document is about",
        "lab_agent/fhir/report_builder.py",
        '"basedOn": [_request_reference(line, context) for line in lines],',
        '"basedOn": [_request_reference(line, context) for line in (lines if report.observations else lines[:1])],',
        f"{_BUILDER}test_order_wide_document_names_every_line",
    ),
    fault(
        "4.42_first_line_of_values",
        "names the first of the lines that a report with values serves",
        "lab_agent/fhir/report_builder.py",
        '"basedOn": [_request_reference(line, context) for line in lines],',
        '"basedOn": [_request_reference(line, context) for line in (lines[:1] if report.observations else lines)],',
        f"{_BUILDER}test_report_lists_every_line_that_it_covers",
    ),
    fault(
        "4.44_any_type_taken",
        "takes a basket of any media type",
        "lab_api/request_body.py",
        "    if kind != _JSON:\n",
        "    if not kind:\n",
        "integration/lab_api/test_endpoints.py::test_basket_is_taken_as_json_alone",
    ),
    fault(
        "4.44_forwarded_as_text",
        "forwards a basket as plain text",
        "lab_sandbox/basket_proxy.py",
        '"content-type": "application/json"}',
        '"content-type": "text/plain"}',
        f"{_SANDBOX}test_endpoints.py::test_basket_functions_forwarded_with_laboratory_credentials",
    ),
    fault(
        "5.8_short_names_in_responses",
        "answers with the short names of rights",
        "lab_sandbox/access_rights.py",
        '{"system": f"{base_url}security/{right}", "code": guid}',
        '{"system": right, "code": guid}',
        f"{_SANDBOX}test_endpoints.py::test_create_patient",
    ),
    fault(
        "7.1_token_error_of_oauth_alone",
        "answers a failed request for a token without an OperationOutcome",
        "lab_api/token_endpoint.py",
        '{**outcome, "error": error,',
        '{"issue": outcome["issue"], "error": error,',
        "integration/lab_api/test_store_updates.py::test_token_endpoint_errors_follow_rfc_6749",
    ),
    fault(
        "7.1_service_says_it_in_words",
        "the sandbox answers what is not in its table without an OperationOutcome",
        "lab_sandbox/error_handlers.py",
        "    return Response(encode(operation_outcome([issue])), status, headers, "
        '"application/json")\n\n\nasync def _handle_unexpected_error',
        '    return Response(issue.diagnostics, status, headers, "text/plain")\n\n\nasync def _handle_unexpected_error',
        f"{_SANDBOX}test_interface_sentences.py::test_every_failure_has_an_operation_outcome",
    ),
    fault(
        "7.1_service_token_error_of_oauth_alone",
        "the sandbox answers a failed request for a token without an OperationOutcome",
        "lab_sandbox/error_handlers.py",
        '        body |= {"error": exc.error,',
        '        body = {"error": exc.error,',
        f"{_SANDBOX}test_interface_sentences.py::test_every_failure_has_an_operation_outcome",
    ),
    fault(
        "9.4_stage_uploads_documents",
        "has the template for stage upload documents",
        "config/stage.toml",
        'documents = "none"\n',
        'documents = "upload"\n',
        "unit/settings/test_shipped_files.py::test_completed_template_is_valid",
    ),
)
