"""Whether lab-api lives, as the agent finds out: at its own address, at the public one, and by the catalogue that it serves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from lab_agent.api_health import ApiHealth, build_api_health
from lab_agent.conditions.ids import ConditionId
from lab_agent.domain.catalogue_records import CatalogueVersion
from lab_agent.errors import LabAgentError
from lab_agent.monitoring.api_probes import build_api_probes
from lab_agent.monitoring.monitor import Finding, Monitor, Probe
from lab_agent.settings.api import ApiSettings
from lab_agent.settings.monitoring import MonitoringSettings
from tests.fakes.memory_store import MemoryStore
from tests.harness.canned_server import Canned, canned_server
from tests.harness.certificates import CertificateAuthority
from tests.harness.clock import VirtualClock
from tests.harness.programs import NotifySocket, free_port, running_api, write_settings_file

MINUTE = timedelta(minutes=1)
SERVED = b'{"status":"ready","catalogue":"older"}'
ALIVE = b'{"status":"ok","service":"lab-api"}'
UNREADY = b'{"status":"not ready","catalogue":"older","title":"The database cannot be written"}'


def steady_of(clock: VirtualClock) -> Callable[[], float]:
    """Steady time that goes as the clock does."""
    return lambda: clock.now().timestamp()


async def look(probe: Probe) -> Sequence[Finding]:
    """What a probe finds; nothing where it cannot tell yet."""
    try:
        return await probe.look()
    except LabAgentError:
        return ()


async def test_stopped_api_told_after_two_failures(folder: Path, tmp_path: Path) -> None:
    """Also its end: the alert is open from the second failure on, and closed with the next answer."""
    port, store, clock = free_port(), MemoryStore(), VirtualClock()
    probe, *_ = build_api_probes(
        ApiHealth(own=f"http://127.0.0.1:{port}/", public=None), store, clock, MINUTE, steady=steady_of(clock)
    )
    monitor = Monitor(store, clock, [probe])
    config, counts = write_settings_file(folder, port), []

    async def watch(times: int) -> None:
        for _ in range(times):
            await monitor.run()
            counts.append(len(await store.run_read_only(lambda uow: uow.alerts.open_of(probe.conditions))))
            clock.advance(minutes=1)

    systemd = NotifySocket(tmp_path / "notify")
    with closing(systemd.sock):
        with running_api(config, systemd.environ):
            systemd.wait_for("READY=1")
            await watch(2)
        await watch(3)
        with running_api(config, systemd.environ):
            systemd.wait_for("READY=1")
            await watch(1)
    assert counts == [0, 0, 0, 1, 1, 0]


async def test_single_look_tells_at_once() -> None:
    health = ApiHealth(own=f"http://127.0.0.1:{free_port()}/", public=None)
    clock = VirtualClock()
    probe, *_ = build_api_probes(health, MemoryStore(), clock, MINUTE, once=True)
    (finding,) = await probe.look()
    assert (finding.condition, finding.since) == (ConditionId.API_NOT_ANSWERING, None)
    assert "Connection refused" in finding.detail


async def test_probe_asks_no_oftener_than_its_interval() -> None:
    health, clock = ApiHealth(own=f"http://127.0.0.1:{free_port()}/", public=None), VirtualClock()
    probe, *_ = build_api_probes(health, MemoryStore(), clock, MINUTE, steady=steady_of(clock))
    for _ in range(5):  # as often as the monitor looks within one interval
        assert not await look(probe)
        clock.advance(10)


async def test_clock_set_back_delays_no_look() -> None:
    clock, steady = VirtualClock(), VirtualClock()
    health = ApiHealth(own=f"http://127.0.0.1:{free_port()}/", public=None)
    probe, *_ = build_api_probes(health, MemoryStore(), clock, MINUTE, steady=steady_of(steady))
    assert not await look(probe)
    clock.advance(hours=-3)
    steady.advance(minutes=1)
    assert await look(probe), "asked a second time, a minute later"


@pytest.mark.parametrize(
    ("answers", "default", "problem"),
    [
        ({"/lab/healthz": Canned(200, b'{"status":"ok","service":"lab-api"}')}, Canned(404), None),
        ({"/lab/nomenclature": Canned(401, b'{"resourceType":"OperationOutcome"}')}, Canned(403), None),
        ({}, Canned(502), "answers 502: the proxy there does not reach lab-api"),
        ({}, Canned(200, b"<h1>It works!</h1>"), "something else than lab-api answers"),
        ({}, Canned(200, b'{"status":"ok"}'), "something else than lab-api answers"),
        ({}, Canned(404), "answers 404, and not as lab-api does"),
    ],
)
async def test_public_address_judged_by_its_answer(answers: dict[str, Canned], default: Canned, problem: str | None) -> None:
    with canned_server(answers, default) as port:
        found = await ApiHealth(own="http://127.0.0.1:1/", public=f"http://127.0.0.1:{port}/lab/").find_public_problem()
    assert (problem in (found or "")) if problem else found is None


@pytest.mark.parametrize(
    ("own_answers", "public_answers", "told"),
    [(True, True, 0), (True, False, 1), (False, False, 0), (False, True, 0)],
)
async def test_public_address_told_only_where_own_answers(own_answers: bool, public_answers: bool, told: int) -> None:
    """An API that does not run is one condition, not two."""
    clock, dead = VirtualClock(), f"http://127.0.0.1:{free_port()}/"
    with canned_server({}, Canned(200, SERVED)) as own, canned_server({}, Canned(200, ALIVE)) as public:
        health = ApiHealth(
            own=f"http://127.0.0.1:{own}/" if own_answers else dead,
            public=f"http://127.0.0.1:{public}/" if public_answers else dead,
        )
        probes = build_api_probes(health, MemoryStore(), clock, MINUTE, steady=steady_of(clock))
        (probe,) = (each for each in probes if ConditionId.API_NOT_PUBLIC in each.conditions)
        for _ in range(3):
            found = await look(probe)
            clock.advance(minutes=1)
    assert len(found) == told


@pytest.mark.parametrize(
    ("days", "hosts", "trusted", "problem"),
    [
        (1, ("localhost",), True, None),
        (1, ("localhost",), False, "its certificate is not trusted"),
        (-0.5, ("localhost",), True, "its certificate has expired"),
        (1, ("other.example",), True, "its certificate is for another"),
    ],
)
async def test_public_certificate_checked(
    tmp_path: Path, days: float, hosts: tuple[str, ...], trusted: bool, problem: str | None
) -> None:
    authority = CertificateAuthority(tmp_path)
    files = authority.issue("api", lifetime=timedelta(days=days), hosts=hosts)
    alive = {"/healthz": Canned(200, b'{"status":"ok","service":"lab-api"}')}
    with canned_server(alive, certificate=files) as port:
        api = ApiSettings(public_url=f"https://127.0.0.1:{port}")
        health = build_api_health(api, MonitoringSettings(api_ca_file=authority.ca if trusted else None), proxy=None)
        assert health is not None
        found = await health.find_public_problem()
    assert (problem in (found or "")) if problem else found is None


async def test_api_that_cannot_work_is_not_taken_for_silent() -> None:
    """It says so itself, and which catalogue it serves; the proxy's own 503 is something else."""
    found = {}
    for name, answer in (("api", Canned(503, UNREADY)), ("proxy", Canned(503, b"Service Unavailable"))):
        with canned_server({"/readyz": answer}) as port:
            health = ApiHealth(own=f"http://127.0.0.1:{port}/", public=None)
            probes = build_api_probes(health, MemoryStore(), VirtualClock(), MINUTE, once=True)
            found[name] = {each.condition.value: each.detail for probe in probes for each in await look(probe)}
    assert found["api"] == {"api.not_ready": "The database cannot be written"}
    assert list(found["proxy"]) == ["api.not_answering"]


async def test_unreadable_authority_said_so(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    api, monitoring = ApiSettings(public_url="https://127.0.0.1:1"), MonitoringSettings(api_ca_file=tmp_path / "ca.pem")
    health = build_api_health(api, monitoring, proxy=None)
    assert health is not None
    assert await health.find_public_problem() == "the certificates of `monitoring.api_ca_file` cannot be read"


async def test_unknown_name_said_so() -> None:
    found = await ApiHealth(own="http://127.0.0.1:1/", public="http://no-such-name.invalid/").find_public_problem()
    assert found is not None
    assert "its name cannot be resolved" in found


async def test_old_catalogue_told_after_some_looks() -> None:
    store, clock = MemoryStore(), VirtualClock()
    version = CatalogueVersion(version="newer", since=clock.now(), content=b"", origin="test")

    def activate(uow: object) -> None:
        uow.catalogues.add(version)  # type: ignore[attr-defined]
        uow.commit()  # type: ignore[attr-defined]

    await store.run(activate)
    found = []
    with canned_server({"/readyz": Canned(200, SERVED)}) as port:
        *_, probe = build_api_probes(
            ApiHealth(own=f"http://127.0.0.1:{port}/", public=None), store, clock, MINUTE, steady=steady_of(clock)
        )
        for _ in range(3):
            found += await look(probe)
            clock.advance(minutes=1)
    (finding,) = found
    assert finding.condition is ConditionId.API_CATALOGUE_OUTDATED
    assert "serves version older, and version newer is in force since" in finding.detail
    with pytest.raises(LabAgentError):  # lab-api is gone: which catalogue it serves is not known
        await probe.look()
