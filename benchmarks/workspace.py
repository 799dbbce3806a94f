"""The folder of a run: settings of the agent, its database, and the folders of the laboratory system."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine, text

from lab_agent.store.engine import READ_ONLY, open_engine
from lab_agent.store.schema import upgrade

ROOT = Path(__file__).resolve().parents[1]
CATALOGUE = ROOT / "config" / "catalogue"
CODES = "http://codes.lab.example"
SECOND_LABELS = f"{CODES}/second-labels"
CONTRACT = "C-100"
LABORATORY = "8b9e7a52-0f64-4c1f-a6a5-52d3f2b7a002"
_EXCHANGE_AND_STORE = """\
[exchange]
base_url = "{base_url}"
lab_codes_url = "{codes}"
second_labels_system = "{second_labels}"
laboratory = "{laboratory}"
[exchange.oauth]
grant = "password"
auth_url = "{base_url}"
client_id = "lab-agent"
client_secret = "unused"
username = "laboratory"
password = "unused"
[exchange.contracts.{contract}]
[store]
url = "{database}"
encryption_keys = ["mBhtlW3ttGseDcUuF61rb-sYuo32K-3GRXN3KNo1Lvc="]
"""
_WORKER_AND_LIS = """\
# The defaults, but for what only waits: second_look_after and settle.
[worker]
second_look_after = 0.05
{worker}[lis]
default = "folder"
[lis.folder]
orders = "{orders}"
results = "{results}"
settle = 0.05
[api]
catalogue = "{catalogue}"
[status]
port = 0
"""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The files of one run."""

    folder: Path
    database: str
    settings_file: Path
    engine: Engine

    @property
    def orders(self) -> Path:
        """Where the agent writes orders."""
        return self.folder / "orders"

    @property
    def results(self) -> Path:
        """Where the laboratory system writes results."""
        return self.folder / "results"

    def count_orders(self, *states: str) -> int:
        """How many orders are in these states."""
        with self.engine.connect().execution_options(**{READ_ONLY: True}) as connection:
            rows = connection.execute(text("SELECT state, count(*) FROM orders GROUP BY state"))
            return sum(count for state, count in rows if state in states)


def make_workspace(folder: Path, base_url: str, *, database: str | None = None, worker: str = "") -> Workspace:
    """Make settings and an empty database in this folder: SQLite, unless another `database` is given.

    `worker` are more lines of its table of the settings.
    """
    url = database or f"sqlite:///{folder}/agent.db"
    made = Workspace(folder, url, folder / "agent.toml", open_engine(url, connections=1))
    made.orders.mkdir()
    made.results.mkdir()
    made.settings_file.write_text(_settings_text(made, base_url, worker))
    upgrade(made.database)
    return made


def exchange_and_store_settings(base_url: str, database: str, contract: str = CONTRACT) -> str:
    """The tables of the settings that every program needs: the exchange service and the store."""
    return _EXCHANGE_AND_STORE.format(
        base_url=base_url, codes=CODES, second_labels=SECOND_LABELS, laboratory=LABORATORY, contract=contract, database=database
    )


def _settings_text(made: Workspace, base_url: str, worker: str) -> str:
    own = _WORKER_AND_LIS.format(worker=worker, orders=made.orders, results=made.results, catalogue=CATALOGUE)
    return exchange_and_store_settings(base_url, made.database) + own
