"""A device reports a code that is not mapped; a person adds a row to the mapping table, and the result is released.

It comes after the daily flow and concerns a completed order, so the released result changes no Task.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime

from lab_sandbox.demo.checks import CheckList
from lab_sandbox.demo.console import DemoConsole
from lab_sandbox.demo.errors import DemoError
from lab_sandbox.demo.lis.simulator import RECEIVED_FOLDER
from lab_sandbox.demo.lis.transport_files import write_atomically
from lab_sandbox.demo.processes import program_path
from lab_sandbox.demo.workspace import Workspace
from lab_sandbox.partner.client import PartnerClient
from lab_sandbox.partner.errors import Json, decode, encode
from lab_sandbox.partner.result_reader import wait_until

_REPORT_ID, _LOCAL_CODE, _LOINC_CODE = "unmapped-code", "FERR", "2276-4"
_MAPPING_ROW = f"{_LOCAL_CODE},{_LOINC_CODE},Ferritin [Mass/volume] in Serum or Plasma,\n"
_BLOOD_COUNT_ITEM = "001.001"
_VALUE, _UNIT, _UCUM = "41.0", "мкг/л", "ug/L"


@dataclass(frozen=True, slots=True)
class MappingScenario:
    """Follows one held result to the clinic; only for a LIS on folders."""

    workspace: Workspace
    client: PartnerClient
    check_list: CheckList
    console: DemoConsole
    timeout: float

    async def run(self) -> None:
        """Runs the scenario and records its checks."""
        self.console.heading("Finally: a result with an unmapped code is held, and released once the code is mapped")
        with self.check_list.record_partner_errors("mapping: the released result reaches the clinic"):
            self._write_report(*self._find_line())
            await self._check_hold()
            await self._release()
            report = await wait_until(
                self._find_report, lambda found: found is not None, timeout=self.timeout, description="the released result"
            )
            await self._check_report(report or {})

    async def _check_hold(self) -> None:
        held = await wait_until(
            lambda: self._run_agent_command("results", "list", "--state", "unmapped", "--json"),
            bool,
            timeout=self.timeout,
            description="an unmapped result",
        )
        reason = held[0]["reason"]
        self.check_list.record("mapping: a result with an unmapped code is held with a reason", _LOCAL_CODE in reason, reason)
        self.check_list.record("mapping: the held result has not reached the clinic", await self._find_report() is None)

    async def _release(self) -> None:
        table = self.workspace.folder / "config" / "mappings" / "codes.csv"
        table.write_text(table.read_text(encoding="utf-8") + _MAPPING_ROW, encoding="utf-8")
        preview = await self._run_agent_command("mappings", "release", "--preview", "--json")
        released = [one["state"] for one in preview] == ["matched"]
        self.check_list.record("mapping: the preview shows what the new row releases", released)
        await self._run_agent_command("mappings", "release", "--by", "demo", "--json")

    async def _check_report(self, report: Json) -> None:
        observation = await self.client.read(report["result"][0]["reference"])
        value, code = observation["valueQuantity"], observation["code"]["coding"][0]["code"]
        mapped = (code, str(value["value"]), value["code"]) == (_LOINC_CODE, _VALUE, _UCUM)
        self.check_list.record(
            "mapping: the released result reaches the clinic", mapped, f"{code} {value['value']} {value['unit']}"
        )

    async def _find_report(self) -> Json | None:
        reports = await self.client.search("DiagnosticReport", {})
        return next((one for one in reports if one["identifier"][0]["value"].endswith(f".{_REPORT_ID}")), None)

    def _find_line(self) -> tuple[str, str]:
        """Keys of an order and of a line that the laboratory has performed."""
        for file in sorted((self.workspace.lis / RECEIVED_FOLDER).glob("*.json")):
            order = decode(file.read_bytes())
            for line in order["lines"]:
                if line["item"] == _BLOOD_COUNT_ITEM:
                    return order["key"], line["key"]
        raise DemoError(f"The LIS simulator has received no order for {_BLOOD_COUNT_ITEM}.")

    def _write_report(self, order: str, line: str) -> None:
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        amount = {"value": _VALUE, "unit": _UNIT}
        body = {
            "report_id": _REPORT_ID,
            "order": order,
            "lines": [line],
            "items": [_LOCAL_CODE],
            "status": "final",
            "effective": now,
            "issued": now,
            "observations": [{"code": {"code": _LOCAL_CODE, "display": "Ferritin"}, "value_quantity": amount}],
        }
        write_atomically(self.workspace.results, f"{order}-{_REPORT_ID}.json", encode(body))

    async def _run_agent_command(self, *arguments: str) -> list[Json]:
        """The JSON that a command of the agent prints."""
        process = await asyncio.create_subprocess_exec(
            program_path("lab-agent"), *arguments, "--config", str(self.workspace.agent_settings),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=self.workspace.folder,
        )  # fmt: skip
        out, err = await process.communicate()
        if process.returncode:
            raise DemoError(f"lab-agent {' '.join(arguments[:2])} failed.", err.decode())
        return list(decode(out))
