"""Known-bad variants that the kill loops must find: `kills` over the whole flow, `adapters` over each adapter alone."""

from __future__ import annotations

from tests.proof.mutants import Mutant

_KILLS = "proof/test_kills.py::test_killed_programs_lose_and_double_nothing"

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
        name="laboratory_not_asked",
        what="hands an order over again after an unknown outcome, without asking the laboratory system first",
        file="lab_agent/workflow/handover.py",
        old="        match await adapter.was_received(key):\n",
        new="        match False:\n",
        found_by="kills",
        tests=(f"{_KILLS}[http]",),
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
)
