"""The match desk: a device reports in words that nobody has mapped; a person adds a row, and the result goes out.

It comes after the story, about an order that has ended: what is released moves no Task.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime

from lab_sandbox.demo.ledger import Ledger
from lab_sandbox.demo.lis.drop import drop
from lab_sandbox.demo.programs import beside
from lab_sandbox.demo.screen import Screen
from lab_sandbox.demo.trouble import DemoError
from lab_sandbox.demo.workplace import Workplace
from lab_sandbox.partner.client import PartnerClient
from lab_sandbox.partner.plain_json import Json, decode, encode
from lab_sandbox.partner.reading import until

_REPORT, _LOCAL, _LOINC = "own-words", "FERR", "2276-4"
_ROW = f"{_LOCAL},{_LOINC},Ferritin [Mass/volume] in Serum or Plasma,\n"
_BLOOD_COUNT = "001.001"
_VALUE, _UNIT, _UCUM = "41.0", "мкг/л", "ug/L"


@dataclass(frozen=True, slots=True)
class MatchDesk:
    """One result from its hold to the clinic; only where the laboratory system works on folders."""

    place: Workplace
    client: PartnerClient
    ledger: Ledger
    screen: Screen
    patience: float

    async def show(self) -> None:
        """All of it."""
        self.screen.heading("And: a code that nobody has mapped, released from the match desk")
        with self.ledger.about("desk: the result reaches the clinic"):
            self._report(*self._line())
            held = await until(
                lambda: self._ask("results", "list", "--state", "unmapped", "--json"),
                bool,
                within=self.patience,
                what="an unmapped result",
            )
            self.ledger.note("desk: an unmapped code is held, with its reason", _LOCAL in held[0]["reason"], held[0]["reason"])
            self.ledger.note("desk: nothing of it is with the clinic", await self._arrived() is None)
            table = self.place.folder / "config" / "mappings" / "codes.csv"
            table.write_text(table.read_text(encoding="utf-8") + _ROW, encoding="utf-8")
            preview = await self._ask("mappings", "release", "--preview", "--json")
            self.ledger.note("desk: a preview says what a new row releases", [one["state"] for one in preview] == ["matched"])
            await self._ask("mappings", "release", "--by", "demo", "--json")
            found = await until(self._arrived, lambda one: one is not None, within=self.patience, what="the released result")
            await self._judge(found or {})

    async def _judge(self, report: Json) -> None:
        observation = await self.client.read(report["result"][0]["reference"])
        value, code = observation["valueQuantity"], observation["code"]["coding"][0]["code"]
        right = (code, str(value["value"]), value["code"]) == (_LOINC, _VALUE, _UCUM)
        self.ledger.note("desk: the result reaches the clinic", right, f"{code} {value['value']} {value['unit']}")

    async def _arrived(self) -> Json | None:
        listed = await self.client.search("DiagnosticReport", {})
        return next((one for one in listed if one["identifier"][0]["value"].endswith(f".{_REPORT}")), None)

    def _line(self) -> tuple[str, str]:
        """Keys of an order and of a line that the laboratory has performed."""
        for file in sorted((self.place.lis / "taken").glob("*.json")):
            order = decode(file.read_bytes())
            for line in order["lines"]:
                if line["item"] == _BLOOD_COUNT:
                    return order["key"], line["key"]
        raise DemoError("the laboratory system has counted no blood")

    def _report(self, order: str, line: str) -> None:
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        amount = {"value": _VALUE, "unit": _UNIT}
        body = {
            "report_id": _REPORT,
            "order": order,
            "lines": [line],
            "items": [_LOCAL],
            "status": "final",
            "effective": now,
            "issued": now,
            "observations": [{"code": {"code": _LOCAL, "display": "Ferritin"}, "value_quantity": amount}],
        }
        drop(self.place.results, f"{order}-{_REPORT}.json", encode(body))

    async def _ask(self, *words: str) -> list[Json]:
        """The JSON that a command of the agent prints."""
        process = await asyncio.create_subprocess_exec(
            beside("lab-agent"), *words, "--config", str(self.place.agent_settings),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=self.place.folder,
        )  # fmt: skip
        out, err = await process.communicate()
        if process.returncode:
            raise DemoError(f"lab-agent {' '.join(words[:2])} failed", err.decode())
        return list(decode(out))
