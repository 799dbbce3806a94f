"""`lab-agent init`: a file that holds, the sheet for the registration, and no surprise for what was there."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab_agent.cli import init_systemd
from lab_agent.lis.hl7v2.field_map import default_field_map, load_field_map
from lab_agent.settings.root import Settings, load_settings
from lab_agent.store.crypto import hash_token
from tests.harness.paths import CATALOGUE

COMMON = {
    "--base-url": "https://exchange.example/api",
    "--lab-codes-url": "https://codes.example",
    "--laboratory": "our-guid",
    "--auth-url": "https://auth.example",
    "--client-id": "our-client",
    "--catalogue": str(CATALOGUE),
    "--public-url": "https://lab.example/api",
}
PASSWORD = {"--grant": "password", "--username": "login", "--password": "hunter2"}
CODE = {"--grant": "authorization_code"}
CONTRACTS = ("--contract", "C-100", "--contract", "C-200")


def words(options: dict[str, str]) -> list[str]:
    return [word for pair in options.items() for word in pair]


@pytest.mark.parametrize("grant", [PASSWORD, CODE], ids=["password", "authorization_code"])
def test_generated_settings_pass_offline_check(cli, tmp_path, grant):
    """The sample catalogue has studies with a second barcode, so its system is given."""
    second = ("--second-labels-system", "https://codes.example/second-labels")
    done = cli("init", *words(COMMON | grant), *CONTRACTS, *second, "--no-ask")
    assert done.code == 0, done.err
    assert stat.S_IMODE((tmp_path / "lab-agent.toml").stat().st_mode) == 0o600
    token = re.search(r"Bearer (\S+)", done.out).group(1)
    text = (tmp_path / "lab-agent.toml").read_text()
    assert (token in text, hash_token(token) in text) == (False, True), "only its hash is stored"
    assert ("http://127.0.0.1:8485/callback" in done.out) == (grant is CODE)
    checked = cli("check", "--offline", "--config", "lab-agent.toml")
    assert (checked.code, "WRONG" in checked.out) == (0, False), checked.out


def test_guid_of_connection_is_a_setting(cli, tmp_path):
    cli("init", *words(COMMON | PASSWORD), *CONTRACTS)
    assert load_settings(tmp_path / "lab-agent.toml").exchange.laboratory == "our-guid"


def test_secrets_are_unique_and_not_printed(cli):
    sheets, keys = [], set()
    for name in ("a.toml", "b.toml"):
        done = cli("init", *words(COMMON | PASSWORD), *CONTRACTS, "--output", name, "--json")
        sheets.append(done.json())
        key = load_settings(Path(name), {}).store.encryption_keys[0].get_secret_value()
        keys.add(key)
        assert not [secret for secret in ("hunter2", key) if secret in done.out + done.err]
    assert sheets[0]["preanalytics"] == "POST https://lab.example/api/preanalytics"
    assert sheets[0]["contracts"] == ["C-100", "C-200"]
    assert (len(keys), sheets[0]["authorization"] != sheets[1]["authorization"]) == (2, True)


def test_password_read_from_environment(cli, monkeypatch):
    monkeypatch.setenv("LAB_AGENT_EXCHANGE__OAUTH__PASSWORD", "hunter3")
    without = {name: value for name, value in PASSWORD.items() if name != "--password"}
    assert cli("init", *words(COMMON | without), *CONTRACTS).code == 0
    monkeypatch.delenv("LAB_AGENT_EXCHANGE__OAUTH__PASSWORD")
    assert load_settings(Path("lab-agent.toml"), {}).exchange.oauth.password.get_secret_value() == "hunter3"


def test_existing_file_kept_unless_forced_with_valid_answers(cli, tmp_path):
    """Tables that exist and chosen folders are left, also then."""
    there, tables = tmp_path / "lab-agent.toml", tmp_path / "mappings"
    tables.mkdir()
    for file in (there, tables / "codes.csv"):
        file.write_text("precious")
    done = cli("init", *words(COMMON | PASSWORD), *CONTRACTS)
    assert (done.code, "--force" in done.err) == (1, True)
    assert cli("init", *words(COMMON | PASSWORD | {"--base-url": "x"}), *CONTRACTS, "--force").code == 1
    assert there.read_text() == "precious"
    assert cli("init", *words(COMMON | PASSWORD | {"--catalogue": "ours"}), *CONTRACTS, "--force").code == 0
    assert "precious" not in there.read_text()
    assert [(path.name, path.read_text()) for path in tables.iterdir()] == [("codes.csv", "precious")]
    assert not (tmp_path / "ours").exists()


HL7V2 = {"--adapter": "hl7v2", "--lis-host": "127.0.0.1", "--lis-port": "9"}


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        ({"--base-url": "exchange.example"}, 1, "exchange.base_url"),
        ({"--laboratory": "<our guid>"}, 1, "exchange.laboratory"),
        ({"--contract": "https://exchange.example/"}, 1, "exchange.contracts"),
        ({"--client-id": "<our client id>"}, 1, "exchange.oauth.client_id"),
        ({"--grant": "magic"}, 2, "client_credentials"),
        ({"--output": "no/such/file.toml"}, 1, "cannot be written"),
        ({"--site": "stage"}, 2, ""),
        (HL7V2 | {"--lis-port": "70000"}, 2, ""),
        (HL7V2 | {"--duplicates": "magic"}, 2, ""),
    ],
    ids=str,
)
def test_wrong_answer_leaves_no_file(cli, tmp_path, options, code, told):
    done = cli("init", *words(COMMON | PASSWORD | options), *CONTRACTS, "--no-ask")
    assert (done.code, told in done.err) == (code, True)
    assert list(tmp_path.iterdir()) == []


def test_without_terminal_all_missing_options_listed(cli):
    done = cli("init", "--base-url", "https://exchange.example")
    named = ("--lab-codes-url", "--laboratory", "--grant", "--contract", "--client-secret")
    assert (done.code, [option in done.err for option in named]) == (2, [True] * 4 + [False])


def test_missing_values_prompted(cli):
    answers = [
        *("exchange.example/api", "https://exchange.example/api", "https://codes.example", "", "our-guid", "magic"),
        *("authorization_code", "https://auth.example", "our-client", "", "C-100 C-200", "https://lab.example"),
        *(str(CATALOGUE), "", "", "", ""),
    ]
    done = cli("init", "--client-secret", "secret", "--ask", stdin="\n".join(answers) + "\n")
    assert (done.code, done.err.count("Please try again")) == (0, 2), done.err
    exchange = load_settings(Path("lab-agent.toml"), {}).exchange
    assert (list(exchange.contracts), exchange.second_labels_system) == (["C-100", "C-200"], None)


def test_unusual_characters_round_trip(cli):
    strange = {"--username": 'quo"te\\back\x7f', "--password": "é\t☃ #"}
    assert cli("init", *words(COMMON | PASSWORD | strange), "--contract", "C.1", "--force").code == 0
    exchange = load_settings(Path("lab-agent.toml"), {}).exchange
    found = (exchange.oauth.username, exchange.oauth.password.get_secret_value(), list(exchange.contracts))
    assert found == ('quo"te\\back\x7f', "é\t☃ #", ["C.1"])


@pytest.mark.slow
def test_files_named_are_created_beside_settings(cli, tmp_path):
    (tmp_path / "conf").mkdir()
    without = {name: value for name, value in COMMON.items() if name != "--catalogue"}
    assert cli("init", *words(without | PASSWORD | HL7V2 | {"--output": "conf/lab-agent.toml"}), *CONTRACTS).code == 0
    settings = load_settings(Path("conf/lab-agent.toml"), {})
    assert settings.api.catalogue == tmp_path / "conf" / "catalogue"
    assert (settings.api.catalogue / "items.csv").read_bytes() == (CATALOGUE / "items.csv").read_bytes()
    assert (settings.results.mappings / "codes.csv").read_text().splitlines() == ["code,loinc,display,system"]
    assert load_field_map(Path(settings.lis.tables["hl7v2"]["mapping"])) == default_field_map()
    checked = cli("check", "--offline", "--config", "conf/lab-agent.toml")
    assert "hl7v2" in checked.out
    assert not [line for line in checked.out.splitlines() if "WRONG" in line and "econd" not in line], checked.out


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The root of a machine whose programs of systemd write down what they are told in `told`, and whose root has umask 077."""
    root, programs = tmp_path / "machine", tmp_path / "programs"
    sites = [f"{top}/{name}" for top in ("etc", "var/lib") for name in ("lab-agent", "lab-agent-stage")]
    for folder in (*sites, "etc/lab-agent/credentials", "etc/lab-agent-stage/credentials", "run/systemd/system"):
        (root / folder).mkdir(parents=True)
    programs.mkdir()
    for name in ("systemd-sysusers", "systemd-tmpfiles", "systemctl"):
        (programs / name).write_text(f'#!/bin/sh\n{{ echo "{name} $*"; cat; }} >> {root}/told\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(init_systemd, "ROOT", root)
    before = os.umask(0o077)
    yield root
    os.umask(before)


def init_site(cli: Any, options: dict[str, str], *more: str) -> Any:
    without = {name: value for name, value in (COMMON | options).items() if name != "--catalogue"}
    return cli("init", "--systemd", *words(without), *CONTRACTS, "--no-ask", *more)


CREDENTIALS = {"--grant": "client_credentials", "--client-secret": "hunter4"}
POSTGRESQL = "postgresql://lab:hunter5@db/lab"


@pytest.mark.slow
def test_systemd_secrets_become_files_of_root(cli: Any, machine: Path) -> None:
    home = machine / "etc/lab-agent"
    secret, password = "exchange.oauth.client_secret", "exchange.oauth.password"
    for options, names in (
        (CREDENTIALS, [secret]),
        (PASSWORD | {"--client-secret": "hunter4"}, [secret, password]),
        (PASSWORD | {"--grant": "basic"}, [password]),
        (CODE, []),
        (CODE | {"--store": POSTGRESQL}, ["store.url"]),
        (CODE | {"--store": "postgresql://lab@db/lab"}, []),
    ):
        done = init_site(cli, options, "--force")
        assert done.code == 0, done.err
        files = list((home / "credentials").iterdir())
        assert sorted(file.name for file in files) == sorted([*names, "store.encryption_keys"])
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        text = (home / "lab-agent.toml").read_text()
        assert not [file.name for file in files if file.read_text().strip() in text]
        for file in files:
            file.unlink()


def load_site(machine: Path) -> Settings:
    home = machine / "etc" / "lab-agent"
    return load_settings(home / "lab-agent.toml", {"CREDENTIALS_DIRECTORY": str(home / "credentials")})


def test_systemd_settings_hold_with_their_credentials(cli: Any, machine: Path) -> None:
    assert init_site(cli, PASSWORD | {"--username": "hunter2"}).code == 0  # the same text as the password
    settings = load_site(machine)
    assert (settings.exchange.oauth.username, settings.worker.mode) == ("hunter2", "observe")
    assert settings.backup.folder == machine / "var/backups/lab-agent"
    assert settings.store.url == f"sqlite:///{machine}/var/lib/lab-agent/lab-agent.db"
    readable = [settings.api.catalogue / "items.csv", settings.results.mappings / "codes.csv"]
    assert [stat.S_IMODE(file.stat().st_mode) for file in readable] == [0o644, 0o644]


def test_systemd_encryption_key_outlives_force(cli: Any, machine: Path) -> None:
    assert init_site(cli, PASSWORD).code == 0
    credentials = machine / "etc/lab-agent/credentials"
    key = (credentials / "store.encryption_keys").read_text()
    assert init_site(cli, PASSWORD).code == 1
    assert init_site(cli, PASSWORD | {"--password": "another"}, "--force").code == 0
    assert (credentials / "store.encryption_keys").read_text() == key
    assert (credentials / "exchange.oauth.password").read_text() == "another\n"


@pytest.mark.slow
def test_systemd_makes_user_and_folders(cli: Any, machine: Path) -> None:
    for site, name, control, target in (
        ((), "lab-agent", "lab-agentctl check", "lab-agent.target"),
        (("--site", "stage"), "lab-agent-stage", "lab-agentctl --site stage check", "lab-agent@stage.target"),
    ):
        (machine / "told").unlink(missing_ok=True)
        done = init_site(cli, PASSWORD, *site)
        assert done.code == 0, done.err
        told = (machine / "told").read_text().splitlines()
        assert f'u {name} - "{name}" /var/lib/{name} /usr/sbin/nologin' in told
        assert f"d /etc/{name}/credentials 0700 root      root" in told
        assert f"z {machine}/etc/{name}/lab-agent.toml 0640 root {name}" in told
        folders = [f"{machine}/var/lib/{name}/{folder}" for folder in ("lis", "lis/orders", "lis/results")]
        assert [line for line in told if line.startswith('d "')] == [f'd "{each}" 0770 {name} {name}' for each in folders]
        assert told[-1] == "systemctl daemon-reload"
        assert not (machine / "etc/systemd").exists(), "nothing is written elsewhere"
        assert (control in done.err, f"systemctl enable --now {target}" in done.err) == (True, True)


def test_systemd_drop_in_lets_agent_write_elsewhere(cli: Any, machine: Path) -> None:
    there, missing = machine / "srv" / "orders", machine / "srv" / "100 % results"
    there.mkdir(parents=True)
    assert init_site(cli, PASSWORD | {"--orders": str(there), "--results": str(missing)}, "--site", "stage").code == 0
    drop_in = machine / "etc/systemd/system/lab-agent@stage.service.d/lis.conf"
    quoted = f"{machine}/srv/100 %% results"
    assert drop_in.read_text() == f'[Service]\nReadWritePaths="-{there}" "-{quoted}"\n'
    told = (machine / "told").read_text().splitlines()
    assert f'd "{quoted}" 0770 lab-agent-stage lab-agent-stage' in told
    assert not [line for line in told if str(there) in line], "a folder that is there is somebody's"
    assert init_site(cli, PASSWORD, "--site", "stage", "--force").code == 0
    assert not drop_in.exists(), "the folders are its own again"


def test_systemd_answer_is_below_the_state_folder(cli: Any, machine: Path) -> None:
    answers = ("--orders", "out/orders", "--results", "results", "--catalogue", "tests", "--store", "sqlite:///own.db")
    assert init_site(cli, PASSWORD, *answers).code == 0
    settings, state = load_site(machine), machine / "var/lib/lab-agent"
    folders = [settings.lis.tables["folder"][name] for name in ("orders", "results")]
    assert folders == [f"{state}/out/orders", f"{state}/results"]
    assert (settings.api.catalogue, settings.store.url) == (state / "tests", f"sqlite:///{state}/own.db")
    assert init_site(cli, PASSWORD | HL7V2, "--force").code == 0
    assert f'd "{state}/lis/hl7v2" 0770 lab-agent lab-agent' in (machine / "told").read_text()


def test_systemd_site_no_unit_can_have_is_refused(cli: Any, machine: Path) -> None:
    for site in ("Stage", "9th", "a_b", "../x", "a-", "a" * 21, "%i"):
        assert init_site(cli, PASSWORD, f"--site={site}").code == 2, site
    assert not (machine / "told").exists()


def test_systemd_that_is_not_possible_or_fails_is_told(cli: Any, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: False)
        assert init_site(cli, PASSWORD).code == 2, "not root"
        assert not (machine / "told").exists()
    tmpfiles = machine.parent / "programs" / "systemd-tmpfiles"
    tmpfiles.write_text("#!/bin/sh\necho no such group >&2\nexit 73\n")
    done = init_site(cli, PASSWORD)
    assert (done.code, "systemd-tmpfiles" in done.err, "no such group" in done.err) == (1, True, True)
    tmpfiles.unlink()
    tmpfiles.with_name("systemd-sysusers").write_text("#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmpfiles.parent))
    assert init_site(cli, PASSWORD, "--force").code == 2
