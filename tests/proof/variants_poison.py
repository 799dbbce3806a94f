"""Known-bad variants that the proof `poison` must find."""

from __future__ import annotations

from tests.proof.mutants import Mutant

_POISON = "proof/test_poison.py"

VARIANTS: tuple[Mutant, ...] = (
    Mutant(
        name="bad_entry_fails_its_page",
        what="reads nothing of a page of which one entry is not valid JSON",
        file="lab_agent/exchange/bundle_pages.py",
        old="        parts = _split_entries(text) or _split_at_beginnings(text)\n",
        new="        parts = None\n",
        found_by="poison",
        tests=(f"{_POISON}::test_one_poison_is_told_and_the_others_pass[order]",),
    ),
    Mutant(
        name="bad_row_is_thrown_away",
        what="marks a row of the sql adapter that cannot be read as processed, and tells nobody",
        file="lab_agent/lis/sql/adapter.py",
        old="            await _reject(inbox, row_id, result_row, error)  # alert first, in case of a crash here\n",
        new="",
        found_by="poison",
        tests=(f"{_POISON}::test_one_poison_is_told_and_the_others_pass[sql row]",),
    ),
    Mutant(
        name="bad_message_is_thrown_away",
        what="refuses an HL7 v2 message, and keeps nothing of it",
        file="lab_agent/lis/hl7v2/receiver.py",
        old='        if decision.letter != "A" and data:\n',
        new='        if decision.letter == "never" and data:\n',
        found_by="poison",
        tests=(f"{_POISON}::test_one_poison_is_told_and_the_others_pass[HL7 v2 message]",),
    ),
    Mutant(
        name="bad_file_is_moved_away",
        what="moves a file that cannot be read to `failed`, and tells nobody",
        file="lab_agent/lis/folder/adapter.py",
        old="        await inbox.reject(result_file.message_id, str(error.problems[0]), raw=result_file.data)\n",
        new="",
        found_by="poison",
        tests=(f"{_POISON}::test_one_poison_is_told_and_the_others_pass[result file]",),
    ),
)
