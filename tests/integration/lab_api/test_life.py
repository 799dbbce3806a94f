"""Whether lab-api lives, as the agent finds out: at its own address, at the public one, and by the catalogue that it serves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lab_agent.catalogue.records import CatalogueVersion
from lab_agent.operations.api_health import ApiHealth, build_api_health
from lab_agent.operations.api_probes import build_api_probes
from lab_agent.operations.monitor import Finding, Monitor, Probe
from lab_agent.settings.api import ApiSettings
from lab_agent.settings.groups import MonitoringSettings
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.errors import LabAgentError
from tests.harness.canned_server import Canned, canned_server
from tests.harness.certificates import CertificateAuthority
from tests.harness.clock import VirtualClock
from tests.harness.programs import free_port
from tests.integration.lab_api.parts import TroubledStore

SERVED = b'{"status":"ready","catalogue":"older"}'
ALIVE = b'{"status":"ok","service":"lab-api"}'
UNREADY = b'{"status":"not ready","catalogue":"older","title":"The database cannot be written"}'
OTHER, NOT_OURS = "something else than lab-api answers", "answers 404, and not as lab-api does"


def at(port: int | None, path: str = "") -> str:
    """An address on a port; without one, where nobody answers."""
    return f"http://127.0.0.1:{port or free_port()}/{path}"


def probes(
    own: int | None, store: TroubledStore, clock: VirtualClock, *, steady: VirtualClock | None = None, **more: Any
) -> dict[ConditionId, Probe]:
    """The probes by what they tell; steady time goes as the clock does, unless it has one of its own."""
    moved = steady or clock
    health = ApiHealth(own=at(own), public=more.pop("public", None))
    made = build_api_probes(health, store, clock, timedelta(minutes=1), steady=lambda: moved.now().timestamp(), **more)
    return {next(iter(each.conditions)): each for each in made}


async def look(probe: Probe) -> Sequence[Finding]:
    """What a probe finds; nothing where it cannot tell yet."""
    try:
        return await probe.look()
    except LabAgentError:
        return ()


async def test_silent_api_told_after_two_failures(store: TroubledStore, clock: VirtualClock) -> None:
    answers: dict[str, Canned] = {}
    counts = []
    with canned_server(answers, Canned(503)) as port:
        probe = probes(port, store, clock)[ConditionId.API_NOT_ANSWERING]
        monitor = Monitor(store, clock, [probe])
        for _ in range(3):
            await monitor.run()
            counts.append(len(await store.run_read_only(lambda uow: uow.alerts.open_of(probe.conditions))))
            clock.advance(minutes=1)
            if counts[-1]:
                answers["/readyz"] = Canned(200, SERVED)
    assert counts == [0, 1, 0]


async def test_silent_api_asked_once_an_interval(store: TroubledStore, clock: VirtualClock) -> None:
    """However often the monitor looks; a clock that is set back delays no look; a single look tells at once."""
    (finding,) = await probes(None, store, clock, once=True)[ConditionId.API_NOT_ANSWERING].look()
    assert (finding.condition, finding.since) == (ConditionId.API_NOT_ANSWERING, None)
    assert "Connection refused" in finding.detail
    steady = VirtualClock()
    probe = probes(None, store, clock, steady=steady)[ConditionId.API_NOT_ANSWERING]
    for _ in range(5):
        assert not await look(probe)
        steady.advance(10)
    clock.advance(hours=-3)
    steady.advance(10)
    assert await look(probe), "asked a second time, a minute later"


@pytest.mark.parametrize(
    ("path", "answer", "default", "problem"),
    [
        ("/lab/healthz", Canned(200, ALIVE), Canned(404), None),
        ("/lab/nomenclature", Canned(401, b'{"resourceType":"OperationOutcome"}'), Canned(403), None),
        ("", None, Canned(502), "answers 502: the proxy there does not reach lab-api"),
        ("", None, Canned(200, b"<h1>It works!</h1>"), OTHER),
        ("", None, Canned(200, b'{"status":"ok"}'), OTHER),
        ("", None, Canned(404), NOT_OURS),
    ],
)
async def test_public_address_judged_by_its_answer(path: str, answer: Any, default: Canned, problem: str | None) -> None:
    with canned_server({path: answer} if path else {}, default) as port:
        found = await ApiHealth(own=at(1), public=at(port, "lab/")).find_public_problem()
    assert (problem in (found or "")) if problem else found is None


@pytest.mark.parametrize(("own_answers", "public_answers"), [(True, True), (True, False), (False, False), (False, True)])
async def test_public_address_told_only_where_own_answers(
    store: TroubledStore, clock: VirtualClock, own_answers: bool, public_answers: bool
) -> None:
    """An API that does not run is one condition, not two."""
    with canned_server({}, Canned(200, SERVED)) as own, canned_server({}, Canned(200, ALIVE)) as public:
        address = at(public if public_answers else None)
        probe = probes(own if own_answers else None, store, clock, public=address)[ConditionId.API_NOT_PUBLIC]
        for _ in range(3):
            found = await look(probe)
            clock.advance(minutes=1)
    assert len(found) == (own_answers and not public_answers)


@pytest.mark.parametrize(
    ("days", "host", "authority", "problem"),
    [
        (1, "localhost", "ca", None),
        (1, "localhost", None, "its certificate is not trusted"),
        (1, "localhost", "damaged", "the certificates of `monitoring.api_ca_file` cannot be read"),
        (-0.5, "localhost", "ca", "its certificate has expired"),
        (1, "other.example", "ca", "its certificate is for another"),
    ],
)
async def test_public_certificate_checked(
    tmp_path: Path, days: float, host: str, authority: str | None, problem: str | None
) -> None:
    issuer = CertificateAuthority(tmp_path)
    trusted = {"ca": issuer.ca, "damaged": tmp_path / "damaged.pem", None: None}[authority]
    (tmp_path / "damaged.pem").write_text("no certificate")
    files = issuer.issue("api", lifetime=timedelta(days=days), hosts=(host,))
    with canned_server({"/healthz": Canned(200, ALIVE)}, certificate=files) as port:
        monitoring = MonitoringSettings(api_ca_file=trusted)
        health = build_api_health(ApiSettings(public_url=f"https://127.0.0.1:{port}"), monitoring, proxy=None)
        assert health is not None
        found = await health.find_public_problem()
    assert (problem in (found or "")) if problem else found is None


async def test_unknown_name_said_so() -> None:
    found = await ApiHealth(own=at(1), public="http://no-such-name.invalid/").find_public_problem()
    assert "its name cannot be resolved" in (found or "")


async def test_api_that_cannot_work_is_not_taken_for_silent(store: TroubledStore, clock: VirtualClock) -> None:
    """It says so itself, and which catalogue it serves; the proxy's own 503 is something else."""
    found = {}
    for name, answer in (("api", Canned(503, UNREADY)), ("proxy", Canned(503, b"Service Unavailable"))):
        with canned_server({"/readyz": answer}) as port:
            asked = probes(port, store, clock, once=True).values()
            found[name] = {each.condition.value: each.detail for probe in asked for each in await look(probe)}
    assert found["api"] == {"api.not_ready": "The database cannot be written"}
    assert list(found["proxy"]) == ["api.not_answering"]


async def test_old_catalogue_told_after_some_looks(store: TroubledStore, clock: VirtualClock) -> None:
    def activate(uow: Any) -> None:
        uow.catalogues.add(CatalogueVersion(version="newer", since=clock.now(), content=b"", origin="test"))

    await store.transact(activate)
    found: list[Finding] = []
    with canned_server({"/readyz": Canned(200, SERVED)}) as port:
        probe = probes(port, store, clock)[ConditionId.API_CATALOGUE_OUTDATED]
        for _ in range(3):
            found += await look(probe)
            clock.advance(minutes=1)
    (finding,) = found
    assert finding.condition is ConditionId.API_CATALOGUE_OUTDATED
    assert "serves version older, and version newer is in force since" in finding.detail
    with pytest.raises(LabAgentError):  # lab-api is gone: which catalogue it serves is not known
        await probe.look()
