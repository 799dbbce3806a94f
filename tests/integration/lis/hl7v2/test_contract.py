"""The hl7v2 adapter keeps the contract: whoever calls whom, on one link or two, however the LIS tells repeats."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lab_agent.lis.hl7v2 import Hl7v2Adapter, Hl7v2Settings
from lab_agent.lis.lab_messages import LabMessage, LabRejection, LabReport, ReportedObservation, ReportedPatient
from lab_agent.lis.laboratory_system import Lis
from lab_agent.lis.testing import AdapterContract, Bench, FaultContract, LisState, make_order
from lab_agent.shared.values import Identifier
from tests.fakes.hl7_lis import Hl7Lis
from tests.harness.programs import free_port


@dataclass
class Hl7Bench:
    lis: Hl7Lis
    settings: Hl7v2Settings

    def adapter(self) -> Lis:
        return Hl7v2Adapter(self.settings, "hl7v2")

    async def orders(self) -> Sequence[str]:
        return self.lis.accepted_ids

    async def cancelled_lines(self) -> Sequence[str]:
        return sorted(self.lis.cancelled_lines)

    async def publish(self, message: LabMessage) -> None:
        self.lis.queue_result(message)

    async def unacknowledged_count(self) -> int:
        return len(self.lis.unacknowledged)

    async def publish_bad(self) -> None:
        self.lis.queue_bad_result()

    async def bad_results_kept(self) -> int:
        return self.lis.bad_results_kept

    async def set_state(self, state: LisState) -> None:
        """HL7 knows no answer that asks to wait, and a slow one is waited for by design."""
        if state in {LisState.BUSY, LisState.SLOW}:
            raise NotImplementedError
        await self.lis.set_state(state.value)

    async def close(self) -> None:
        await self.lis.close()


async def make_bench(folder: Path, orders: str, results: str | None, **keys: object) -> Hl7Bench:
    lis = Hl7Lis(deduplicate_by=str(keys.setdefault("duplicates", "msh10")))
    links = {}
    theirs = await lis.listen()
    for name, role in (("orders", orders), ("results", results)):
        if role is None:
            continue
        port = theirs if role == "client" else free_port()
        links[name] = {"role": role, "port": port}
        if role == "server":
            lis.connect(port)
    settings = Hl7v2Settings.model_validate(
        {**links, "folder": folder / "hl7v2", "answer_timeout": 5, "connect_timeout": 5, "reconnect_wait": 0.02, **keys}
    )
    return Hl7Bench(lis, settings)


class Hl7Contract(AdapterContract):
    """Outages have classes of their own, with a short `connect_timeout`."""

    test_check_says_that_the_lis_is_unreachable = None  # type: ignore[assignment]
    test_an_unreachable_lis_is_tried_again_later = None  # type: ignore[assignment]
    test_an_unreachable_lis_is_not_said_to_lack_the_order = None  # type: ignore[assignment]
    test_a_withdrawal_is_not_lost_while_the_lis_is_unreachable = None  # type: ignore[assignment]
    test_an_adapter_starts_again_after_it_could_not = None  # type: ignore[assignment]

    def expected(self, message: LabMessage) -> LabMessage:
        """An ORU names neither our order's key nor a version; the report's name is its lines and its test."""
        patient = ReportedPatient(identifiers=(Identifier(value="X"),))
        if isinstance(message, LabReport):
            name, seen = f"{'+'.join(message.lines) or message.report_id}/T", tuple(map(in_one_unit, message.observations))
            said = replace(message, order=None, version=None, patient=patient)
            return replace(said, report_id=name, accession=message.report_id, observations=seen)
        assert isinstance(message, LabRejection)
        return replace(message, order=None, patient=patient)


def in_one_unit(one: ReportedObservation) -> ReportedObservation:
    """OBX-6 is the unit of the value and of its range."""
    assert one.value_quantity
    unit = one.value_quantity.unit
    ranges = (
        replace(bounds, low=replace(bounds.low, unit=unit), high=replace(bounds.high, unit=unit))
        for bounds in one.reference_ranges
        if bounds.low and bounds.high
    )
    return replace(one, reference_ranges=tuple(ranges))


class TestWeCallForOrdersAndListenForResults(Hl7Contract):
    async def bench(self, folder: Path) -> Bench:
        return await make_bench(folder, "client", "server")


class TestWeListenForBothWithPlacerNumbers(Hl7Contract):
    async def bench(self, folder: Path) -> Bench:
        return await make_bench(folder, "server", "server", duplicates="placer")


@pytest.mark.slow
class TestWeCallForBothWithCommitAnswers(Hl7Contract):
    async def bench(self, folder: Path) -> Bench:
        return await make_bench(folder, "client", "client", acknowledgement="commit")


@pytest.mark.slow
class TestWeListenForOrdersAndCallForResults(Hl7Contract):
    async def bench(self, folder: Path) -> Bench:
        return await make_bench(folder, "server", "client", acknowledgement="enhanced", order_message="ORM")


@pytest.mark.slow
class TestOneLinkForAllWithoutKnowledgeOfRepeats(Hl7Contract):
    async def bench(self, folder: Path) -> Bench:
        return await make_bench(folder, "client", None, duplicates="none")


@dataclass
class OneLineBench(Hl7Bench):
    """Each line is a message; an order is there as often as the rarest of its lines."""

    async def orders(self) -> Sequence[str]:
        known = [make_order(seed) for seed in range(100)]
        counts = {order.key: min(self.lis.accepted_ids.count(line.key) for line in order.lines) for order in known}
        assert len(set(self.lis.accepted_ids)) == len(self.lis.accepted_ids), "a line was sent twice and not recognised"
        return [key for key, count in counts.items() for _ in range(count)]


@pytest.mark.slow
class TestOneLinePerMessage(Hl7Contract):
    async def bench(self, folder: Path) -> Bench:
        made = await make_bench(folder, "client", "server", one_line_per_message=True)
        return OneLineBench(made.lis, made.settings)


@pytest.mark.slow
class TestOneLinePerMessageWithoutKnowledgeOfRepeats(Hl7Contract):
    async def bench(self, folder: Path) -> Bench:
        made = await make_bench(folder, "client", None, one_line_per_message=True, duplicates="none")
        return OneLineBench(made.lis, made.settings)


@pytest.mark.slow
class TestOneLinkOnWhichWeListen(Hl7Contract):
    async def bench(self, folder: Path) -> Bench:
        return await make_bench(folder, "server", None)


class TestFaultsOfALisThatWeCall(FaultContract):
    async def bench(self, folder: Path) -> Bench:
        return await make_bench(folder, "client", "server", connect_timeout=0.3)


@pytest.mark.slow
class TestFaultsOfALisThatCallsUs(FaultContract):
    async def bench(self, folder: Path) -> Bench:
        return await make_bench(folder, "server", None, connect_timeout=0.3)
