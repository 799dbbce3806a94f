"""One laboratory of real processes in which incidents happen: exchange service, agent, API, files, database."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from lab_agent.operations.accounts import Accounts, Role
from lab_agent.shared import exact_json
from lab_agent.store.crypto import Cipher, Passwords
from lab_agent.store.event_records import Alert
from lab_agent.store.queries import Queries
from lab_agent.store.read_models import AffectedNumbers
from lab_agent.store.schema import upgrade
from lab_agent.store.unit_of_work import Store
from lab_sandbox.config import CLINIC_GUID, SandboxConfig
from lab_sandbox.demo.lis.transport_files import write_atomically
from lab_sandbox.demo.toml_edit import TomlValue, set_values
from lab_sandbox.demo.workspace import Workspace, create_workspace
from tests.harness import forked_programs
from tests.harness.daemon import NO_KEEP_ALIVE
from tests.harness.forked_programs import ForkedProgram
from tests.harness.orders import BASE, procedure_requests, templates
from tests.harness.paths import ROOT

DEADLINE = 60.0
"""Seconds until an incident must be told."""
START = 120.0
"""Seconds that a program may take until it answers, on a machine that is busy with other tests."""
USER, PASSWORD = "night", "a long password for tests"
DATABASE = Path("var/demo/lab-agent.db")
QUICK: Mapping[str, Mapping[str, TomlValue]] = {
    "exchange": {"timeout": 3, "connect_timeout": 1, "read_timeout": 2},
    "worker": {
        "poll_interval": 0.2,
        "poll_longest": 0.5,
        "probe_longest": 0.5,
        "second_look_after": 0.1,
        "lease": 4,
        "reconcile_interval": 0.5,
        "hold_retry": 1,
        "unreadable_after": 0.5,
        "drain_timeout": 1,
        "backoff_first": 0.1,
        "backoff_longest": 0.4,
    },
    "lis": {"call_timeout": 2, "collect_interval": 0.2},
    "lis.folder": {"settle": 0.1, "document_wait": 1},
    "monitoring": {
        "interval": 0.3,
        "heartbeat_interval": 0.2,
        "alert_after": 1.0,
        "alert_after_attempts": 3,
        "disk_reserve": 1,
        "api_interval": 0.5,
    },
    "logging": {"level": "info", "format": "json"},
}
"""What makes a night as short as a test."""


def wait_for(condition: Callable[[], Any], what: str, timeout: float = DEADLINE) -> Any:
    """Look again and again until it gives something true, which is returned; fail with `what` at the time-out."""
    deadline = time.monotonic() + timeout
    while True:
        if found := condition():
            return found
        assert time.monotonic() < deadline, f"not within {timeout:.0f} s: {what}"
        time.sleep(0.1)


@dataclass
class Laboratory:
    """A laboratory in a folder of its own. Programs run until they are stopped; `close` ends whatever still runs."""

    workspace: Workspace
    programs: dict[str, ForkedProgram] = field(default_factory=dict)
    placed: int = 0
    log_begins: int = 0
    """The line of the agent's log at which the incident that runs now began: earlier ones have told their own."""
    _pages: httpx.Client | None = None

    @classmethod
    def create(cls, database: Path, settings: Mapping[str, Mapping[str, TomlValue]]) -> Laboratory:
        """Make the folder with quick settings, and those given; `database` is copied."""
        lab = cls(create_workspace(ROOT / "config", other_ports=True))
        set_values(lab.workspace.service_settings, "", {"fault_admin": True})
        for groups in (QUICK, settings):
            for table, values in groups.items():
                lab.set(table, **values)
        lab.database.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(database, lab.database)
        lab.settings.chmod(0o600)
        return lab

    # --- where things are

    @property
    def settings(self) -> Path:
        """The settings file of agent and API."""
        return self.workspace.agent_settings

    @property
    def database(self) -> Path:
        return self.workspace.folder / DATABASE

    @property
    def orders(self) -> Path:
        return self.workspace.orders

    @property
    def results(self) -> Path:
        return self.workspace.results

    def fill(self, text: str) -> str:
        """A text of which a part is known when the laboratory is there: an address, a folder, a file, how many orders it got."""
        status = f"127.0.0.1:{self.workspace.agent_config['status']['port']}"
        return text.format(status=status, store=self.database.parent, settings=self.settings, placed=self.placed)

    def set(self, table: str, **values: TomlValue) -> None:
        """Change settings; a program that runs has read the former ones."""
        set_values(self.settings, table, values)

    def change_setting(self, table: str, **values: TomlValue) -> None:
        """Change settings, and start the agent anew."""
        self.set(table, **values)
        self.restart_agent()

    def replace_setting(self, old: str, new: str) -> None:
        """Change the text of the settings file."""
        text = self.settings.read_text(encoding="utf-8")
        assert old in text
        self.settings.write_text(text.replace(old, new), encoding="utf-8")

    # --- the programs

    def start(self, *names: str, wait: bool = True) -> None:
        """Start `service` (the exchange service, empty), `api` or `agent`, side by side."""
        programs = {
            "service": ("lab_sandbox.cli", self.workspace.service_settings, f"{self.workspace.service_url}healthz"),
            "api": ("lab_api.cli", self.settings, f"{self.workspace.api_url}/readyz"),
            "agent": ("lab_agent.cli", self.settings, f"{self.workspace.status_url}/healthz"),
        }
        for name in names:
            self._start(name, programs[name][0], "run", "--config", str(programs[name][1]))
        for name in names if wait else ():
            self._wait_until_ready(name, programs[name][2])

    def start_agent(self) -> None:
        self.start("agent")

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """End a program with a signal, and wait for it."""
        process = self.programs.pop(name)
        process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        process.wait(DEADLINE)

    def restart_agent(self) -> None:
        self.stop("agent")
        self.start_agent()

    def freeze(self, name: str) -> None:
        """The program gets no time, until `thaw`; an agent once it has written a heartbeat: before, nobody knows of it."""
        if name == "agent":
            wait_for(self._agent_has_a_heartbeat, "the first heartbeat of the agent")
        self.programs[name].send_signal(signal.SIGSTOP)

    def _agent_has_a_heartbeat(self) -> bool:
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=DEADLINE)) as connection:
            found = connection.execute("SELECT count(*) FROM workers WHERE pid = ?", (self.programs["agent"].pid,)).fetchone()
        return bool(found[0])

    def thaw(self, name: str) -> None:
        self.programs[name].send_signal(signal.SIGCONT)

    def reload(self) -> None:
        """SIGHUP to the agent."""
        self.programs["agent"].send_signal(signal.SIGHUP)

    def close(self) -> None:
        """End what still runs, and delete the folder."""
        if self._pages:
            self._pages.close()
        for process in self.programs.values():
            process.kill()
            process.wait()
        for path in (self.orders, self.results, self.database.parent):
            if path.exists():
                path.chmod(0o755)
        shutil.rmtree(self.workspace.folder, ignore_errors=True)

    def _start(self, name: str, program: str, *words: str) -> None:
        with self.log_file(name).open("ab") as log:
            self.programs[name] = forked_programs.start(
                program, *words, cwd=self.workspace.folder, stdout=log, stderr=log, env=self._environment()
            )

    def _wait_until_ready(self, name: str, address: str) -> None:
        def is_ready() -> bool:
            process = self.programs[name]
            assert process.poll() is None, f"{name} ended:\n{self.log_file(name).read_text()[-3000:]}"
            return _status_of(address) == 200

        wait_for(is_ready, f"{name} at {address}", START)

    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("LAB_AGENT_", "NOTIFY_SOCKET"))}
        return {**inherited, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "COLUMNS": "200"}

    # --- what happens

    def fault(self, *faults: Mapping[str, Any]) -> None:
        """Let the exchange service fail so, from now on; without any, it works again (docs/sandbox.md lists the kinds)."""
        answer = httpx.put(
            f"{self.workspace.service_url}sandbox/faults", json={"faults": list(faults)}, trust_env=False, timeout=DEADLINE
        )
        assert answer.status_code == 200, answer.text

    def place_order(
        self,
        change: Callable[[dict[str, Any]], None] = lambda bundle: None,
        *,
        patient: Callable[[dict[str, Any]], dict[str, Any]] = lambda patient: patient,
    ) -> None:
        """A clinic orders; `change` alters the bundle, and `patient` makes another Patient, before they are sent."""
        template = templates(datetime.now(UTC).replace(minute=0, second=0, microsecond=0))[self.placed % 24]
        self.placed += 1
        with self.clinic() as clinic:
            answer = clinic.post("fhir/Patient", content=self._at_service(patient(template.patient)))
            created = answer.raise_for_status().json()["id"]
            bundle = exact_json.loads(self._at_service(template.bundle).replace("PATIENT", created))
            change(bundle)
            clinic.post("fhir/$CreateDiagnosticRequest", content=exact_json.dumps(bundle)).raise_for_status()

    def place_and_hand_over(self, **more: Any) -> dict[str, Any]:
        """A clinic orders, and the laboratory system takes the order from its folder; gives it as it stands in the file."""
        others = set(self.orders.glob("*.json"))
        self.place_order(**more)
        file = wait_for(lambda: set(self.orders.glob("*.json")) - others, "the file of the order").pop()
        order: dict[str, Any] = json.loads(file.read_bytes())
        file.unlink()
        return order

    def write_result(self, name: str, **fields: Any) -> None:
        """The laboratory system writes a final report of one value."""
        now = datetime.now().astimezone().isoformat()
        value = {"code": {"system": "http://loinc.org", "code": "718-7"}, "value_quantity": {"value": "1.20", "unit": "g/L"}}
        report = {"report_id": name, "version": 1, "status": "final", "effective": now, "issued": now}
        self.write_result_file(f"{name}.json", json.dumps({**report, "observations": [{"id": "x", **value}], **fields}))

    def write_result_file(self, name: str, text: str) -> None:
        """A file appears whole in the folder of results."""
        write_atomically(self.results, name, text.encode())

    def _at_service(self, resource: Any) -> str:
        """A resource of the templates' service as one of this one."""
        text = exact_json.dumps(resource).decode().replace(BASE, self.workspace.service_url)
        ours, theirs = self.workspace.service_config.contracts[0], SandboxConfig().contracts[0]
        return text.replace(theirs.resource_id(), ours.resource_id())

    def clinic(self) -> httpx.Client:
        """A client of the exchange service, signed in as the clinic."""
        service = httpx.Client(
            base_url=self.workspace.service_url, trust_env=False, headers={"Content-Type": "application/json"}, timeout=DEADLINE
        )
        party = self.workspace.service_config.counterparty(CLINIC_GUID)
        assert party is not None
        client = {"client_id": party.client_id, "client_secret": party.client_secret}
        form = {"grant_type": "password", "username": party.login, "password": party.password, **client}
        signed_in = httpx.post(f"{self.workspace.service_url}connect/token", data=form, trust_env=False, timeout=DEADLINE)
        service.headers["Authorization"] = f"Bearer {signed_in.raise_for_status().json()['access_token']}"
        return service

    # --- what is told

    def wait_until_answers(self) -> None:
        """Wait until the status page answers, as an incident before may have ended the agent."""

        def answers() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return self.page("/").status_code < 500
            return False

        wait_for(answers, "the status page", START)

    def page(self, path: str = "/") -> httpx.Response:
        """A page of the status page, for an operator who has signed in."""
        if self._pages is None:
            self._pages = httpx.Client(
                base_url=self.workspace.status_url, trust_env=False, verify=False, timeout=DEADLINE, limits=NO_KEEP_ALIVE
            )
        answer = self._pages.get(path)
        if answer.status_code == 303:
            signed_in = self._pages.post("/sign-in", data={"name": USER, "password": PASSWORD})
            assert signed_in.status_code == 303
            answer = self._pages.get(path)
        return answer

    def readyz(self) -> httpx.Response:
        """As whoever is signed in, if the page has been looked at before."""
        cookies = dict(self._pages.cookies) if self._pages else {}
        return httpx.get(f"{self.workspace.status_url}/readyz", trust_env=False, verify=False, timeout=DEADLINE, cookies=cookies)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of the agent, such as `check`."""
        command = (*words, "--config", str(self.settings))
        return forked_programs.run("lab_agent.cli", *command, cwd=self.workspace.folder, env=self._environment())

    def log_lines(self) -> list[dict[str, Any]]:
        """The agent's log since this incident began, line by line."""
        lines = self.log_file("agent").read_text(encoding="utf-8").splitlines() if self.log_file("agent").exists() else []
        return [json.loads(line) for line in lines[self.log_begins :] if line.startswith("{")]

    def begin_incident(self) -> None:
        """From now on only what is logged from here on counts; orders that nobody took are taken."""
        log = self.log_file("agent")
        self.log_begins = len(log.read_text(encoding="utf-8").splitlines()) if log.exists() else 0
        for file in self.orders.glob("*.json"):
            file.unlink()

    def wait_until_logged(self, action: str) -> None:
        wait_for(lambda: self.logged(action), action)

    def logged(self, action: str) -> list[dict[str, Any]]:
        """The lines of an action, oldest first."""
        return [each for each in self.log_lines() if each.get("action") == action]

    def log_file(self, name: str) -> Path:
        return self.workspace.logs / f"{name}.log"

    def alerts(self) -> tuple[tuple[Alert, ...], AffectedNumbers]:
        """What is open in the database, and what waits there."""

        async def read() -> tuple[tuple[Alert, ...], AffectedNumbers]:
            key = str(self.workspace.agent_config["store"]["encryption_keys"][0])
            store = Store(f"sqlite:///{self.database}", Cipher(key))
            try:
                queries = Queries(store)
                return (await queries.overview(now=datetime.now(UTC))).alerts, await queries.affected_numbers()
            finally:
                await store.close()

        return asyncio.run(read())


def make_database(path: Path, key: str) -> None:
    """A database with the current schema and one operator, to be copied."""
    url = f"sqlite:///{path}"
    upgrade(url)

    async def add() -> None:
        store = Store(url, Cipher(key))
        await Accounts(store, Passwords()).add(USER, PASSWORD, Role.OPERATOR, now=datetime.now(UTC))
        await store.close()

    asyncio.run(add())


def replace_item(bundle: dict[str, Any], code: str = "999.999") -> None:
    """The first line is for an item that is in no catalogue."""
    procedure_requests(bundle)[0]["code"]["coding"][0]["code"] = code


def _status_of(address: str) -> int:
    try:
        return httpx.get(address, trust_env=False, verify=False, timeout=2).status_code
    except httpx.TransportError:
        return 0
