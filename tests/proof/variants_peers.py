"""Known-bad variants for the proof `peers`: found by what reads STU3 and HL7 v2 here without a JDK."""

from __future__ import annotations

from tests.proof.mutants import Mutant

_ESCAPES = "unit/lis/hl7v2/test_escapes.py"
_CODE_PAGES = "integration/lis/hl7v2/test_code_pages.py"
_PYTHON_HL7 = "integration/lis/hl7v2/test_adapter.py::test_python_hl7_clients_and_server_interoperate"

VARIANTS: tuple[Mutant, ...] = (
    Mutant(
        name="segments_end_with_line_feeds",
        what="ends the segments of an HL7 v2 order with line feeds",
        file="lab_agent/lis/hl7v2/orders/order_builder.py",
        old='            return ("\\r".join(lines) + "\\r").encode(self.settings.encoding, errors)\n',
        new='            return ("\\n".join(lines) + "\\n").encode(self.settings.encoding, errors)\n',
        found_by="peers",
        tests=(f"{_ESCAPES}::test_order_message_parsed_by_python_hl7",),
    ),
    Mutant(
        name="own_number_acknowledged",
        what="acknowledges an HL7 v2 message under a number that is not its own",
        file="lab_agent/lis/hl7v2/acks.py",
        old="2: _printable(header.raw(10)), 3:",
        new="2: _printable(control_id), 3:",
        found_by="peers",
        tests=(_PYTHON_HL7,),
    ),
    Mutant(
        name="separators_in_texts",
        what="leaves the separators of fields in the texts of an HL7 v2 order as they are",
        file="lab_agent/lis/hl7v2/parser.py",
        old='        separators.field: "F",\n        separators.component: "S",\n',
        new='        separators.component: "S",\n',
        found_by="peers",
        tests=(_ESCAPES,),
    ),
    Mutant(
        name="dash_removed_before_a_number",
        what="removes the characters that nobody sees before it asks whether a text is a number",
        file="lab_agent/lis/value_reading.py",
        old="    text = text.strip(BLANKS)\n    if _UNSEEN_CHARACTER.search(text):\n",
        new='    text = _UNSEEN_CHARACTER.sub("", text.strip(BLANKS))\n    if _UNSEEN_CHARACTER.search(text):\n',
        found_by="peers",
        tests=(_CODE_PAGES,),
    ),
    Mutant(
        name="windows_page_read_as_iso_8859",
        what="reads the dashes of a Windows page as the control characters that ISO 8859 has in their place",
        file="lab_agent/lis/hl7v2/code_pages.py",
        old="    return data.decode(_WINDOWS_PAGES[encoding] if found else encoding)\n",
        new="    return data.decode(encoding)\n",
        found_by="peers",
        tests=(_CODE_PAGES,),
    ),
    Mutant(
        name="outputs_without_a_type",
        what="writes a sentence into a Task without the type of the output, which STU3 requires",
        file="lab_agent/fhir/task_update.py",
        old='[{"type": _OUTPUT_TYPE, "valueString": text} for text',
        new='[{"valueString": text} for text',
        found_by="peers",
        tests=("integration/results/test_not_performed.py",),
    ),
)
