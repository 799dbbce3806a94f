"""Known-bad variants that the kill loops must find: `kills` over the whole flow, `adapters` over each adapter alone."""

from __future__ import annotations

from tests.proof.mutants import Mutant

_KILLS = "proof/test_kills.py::test_killed_programs_lose_and_double_nothing"
_ADAPTERS = "integration/lis/test_crash_recovery.py::test_agent_killed_five_times_exactly_once"
_HL7 = "integration/lis/hl7v2/test_crash_recovery.py::test_adapter_killed_repeatedly_no_duplicates_no_loss"

VARIANTS: tuple[Mutant, ...] = (
    Mutant(
        name="file_moved_before_commit",
        what="moves a result file away before its result is committed",
        file="lab_agent/lis/folder/adapter.py",
        old="        new = await inbox.accept_all({accepted_id(file.message_id): outcome.content for file, outcome in parsed})\n",
        new="        await self._run_in_thread(lambda: self._move_accepted(files, stored, parsed))\n"
        "        new = await inbox.accept_all({accepted_id(file.message_id): outcome.content for file, outcome in parsed})\n",
        found_by="kills",
        tests=(f"{_KILLS}[folder]",),
    ),
    Mutant(
        name="acknowledged_before_commit",
        what="answers an HL7 v2 message before its result is committed",
        file="lab_agent/lis/hl7v2/receiver.py",
        old="            await self.inbox.accept(part.message_id, part.content)\n",
        new="            later = self.inbox.accept(part.message_id, part.content)\n"
        "            asyncio.get_running_loop().call_later(0.2, asyncio.ensure_future, later)\n",
        found_by="kills",
        tests=(f"{_KILLS}[hl7v2]",),
    ),
    Mutant(
        name="created_without_condition",
        what="creates a resource without If-None-Exist",
        file="lab_agent/exchange/client.py",
        old='headers = {} if if_none_exist is None else {"If-None-Exist": if_none_exist_query(if_none_exist)}',
        new="headers: dict[str, str] = {}",
        found_by="kills",
        tests=(f"{_KILLS}[folder]",),
    ),
    Mutant(
        name="numbers_by_way_of_float",
        what="reads the numbers of JSON by way of a float, so that 1.20 becomes 1.2",
        file="lab_agent/exact_json.py",
        old="_decoder = msgspec.json.Decoder(float_hook=Decimal)\n",
        new="_decoder = msgspec.json.Decoder(float_hook=lambda digits: Decimal(str(float(digits))))\n",
        found_by="kills",
        tests=(f"{_KILLS}[folder]",),
    ),
    Mutant(
        name="answered_before_commit",
        what="answers a posted result with 200, and commits it a moment later",
        file="lab_agent/lis/http/webhook.py",
        old="            new = await self.inbox.accept(name, message)\n",
        new="            new = not await self.inbox.was_accepted(name)\n"
        "            later = self.inbox.accept(name, message)\n"
        "            asyncio.get_running_loop().call_later(0.2, asyncio.ensure_future, later)\n",
        found_by="adapters",
        tests=(f"{_ADAPTERS}[http]",),
    ),
    Mutant(
        name="row_processed_before_commit",
        what="marks a row of the staging tables as processed, and commits its result a moment later",
        file="lab_agent/lis/sql/adapter.py",
        old="            new = await self._accept(result_row, inbox)\n",
        new="            await self._run_in_thread(lambda: self._write(lambda one: self._results.mark_processed(one, row_id)))\n"
        "            await asyncio.sleep(0.3)\n"
        "            new = await self._accept(result_row, inbox)\n",
        found_by="adapters",
        tests=(f"{_ADAPTERS}[sql]",),
    ),
    Mutant(
        name="control_id_of_each_attempt",
        what="gives each attempt of an HL7 v2 order a name of its own, so that a repeat is not recognised",
        file="lab_agent/lis/hl7v2/orders/submission.py",
        old='        if self.settings.duplicates == "msh10":\n            return key\n',
        new="",
        found_by="adapters",
        tests=(f"{_HL7}[3-msh10-False]",),
    ),
)
