"""Known-bad variants for the proof `system_calls`: what is told too early, and an error that nobody looks at."""

from __future__ import annotations

from tests.proof.mutants import Mutant

_TEST = "proof/test_system_calls.py::test_call_that_fails_loses_nothing_and_repeats_nothing"

VARIANTS: tuple[Mutant, ...] = (
    Mutant(
        name="result_moved_before_its_commit",
        what="moves a result file to `done` before it is in the database",
        file="lab_agent/lis/folder/adapter.py",
        old="            new = await inbox.accept(message, parsed.content)\n",
        new="            await self._run_in_thread(lambda: self._results.move_to_done(result_file, parsed.files))\n"
        "            new = await inbox.accept(message, parsed.content)\n",
        found_by="system_calls",
        tests=(f"{_TEST}[results]",),
    ),
    Mutant(
        name="failed_commit_is_success",
        what="answers the callers of a commit that has failed as if it had not",
        file="lab_agent/store/group_commit.py",
        old="unit.error = _copy_error(error)",
        new="_copy_error(error)",
        found_by="system_calls",
        tests=(f"{_TEST}[commits]",),
    ),
    Mutant(
        name="order_written_under_its_final_name",
        what="writes an order where the laboratory system looks for it, byte by byte",
        file="lab_agent/lis/folder/order_files.py",
        old="                part.rename(final)\n",
        new="                final.write_bytes(part.read_bytes())\n                part.unlink()\n",
        found_by="system_calls",
        tests=(f"{_TEST}[handover]",),
    ),
    Mutant(
        name="claimed_result_is_forgotten",
        what="leaves a result file under the hidden name of an agent that was killed while it moved it",
        file="lab_agent/lis/folder/result_folder.py",
        old="        restore_claimed_files(self._settings.results)\n",
        new="",
        found_by="system_calls",
        tests=(f"{_TEST}[results]",),
    ),
    Mutant(
        name="disk_error_is_no_outage",
        what="takes an error of the database's disk for a fault in what was asked",
        file="lab_agent/store/error_translation.py",
        old="""    "SQLITE_IOERR": (StoreFault.UNREACHABLE, "its disk reports an error"),\n""",
        new="",
        found_by="system_calls",
        tests=(f"{_TEST}[commits]",),
    ),
)
