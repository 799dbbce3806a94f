"""Sources, their order, and errors that come all at once."""

import os
from pathlib import Path

import pytest

from lab_agent.errors import SettingsError
from lab_agent.settings.introspection import MASK, iter_masked_values, mask_secrets, mask_url_password
from lab_agent.settings.root import ApiGroups, BackupGroups, Settings, StoreGroups, load_groups, load_settings
from lab_agent.settings.sources import deep_merge

KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
VALID = f"""
[exchange]
base_url = "https://exchange.example/api/"
lab_codes_url = "https://codes.example/"
laboratory = "our-guid"
[exchange.oauth]
grant = "password"
auth_url = "https://auth.example"
client_id = "client"
username = "login"
password = "from-file"
[exchange.contracts.C-1]
[store]
encryption_keys = ["{KEY}"]
[lis.folder]
orders = "orders"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(text, encoding="utf-8")
    return path


def problems(path: Path | None, environ: dict[str, str] | None = None) -> dict[str, str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(path, environ or {})
    return {problem.where: f"{problem.what} — {problem.hint}" for problem in caught.value.problems}


def credentials(folder: Path, **files: str) -> dict[str, str]:
    place = folder / "credentials"
    place.mkdir()
    for name, content in files.items():
        (place / name.replace("__", ".")).write_text(content, encoding="utf-8")
    return {"CREDENTIALS_DIRECTORY": str(place)}


def password(settings: Settings) -> str:
    assert settings.exchange.oauth.password is not None
    return settings.exchange.oauth.password.get_secret_value()


def without_password(folder: Path) -> Path:
    return written(folder, VALID.replace('password = "from-file"\n', ""))


def test_missing_sign_in_secret_is_rejected(tmp_path):
    found = problems(without_password(tmp_path))
    assert found == {
        "exchange.oauth.password": "is missing; the grant 'password' needs it — "
        "set it, or give it as the credential exchange.oauth.password"
    }
    assert password(load_settings(without_password(tmp_path), credentials(tmp_path, exchange__oauth__password="p"))) == "p"


def test_missing_secret_without_sign_in_is_accepted(tmp_path):
    assert load_settings(without_password(tmp_path), {}, requires_login=False).exchange.oauth.password is None


def test_file_alone_is_enough(tmp_path):
    settings = load_settings(written(tmp_path, VALID), {})
    assert password(settings) == "from-file"
    assert settings.worker.mode == "normal"
    assert settings.lis.tables["folder"] == {"orders": "orders"}
    assert settings.report_system == "https://codes.example/report"
    assert settings.observation_system == "https://codes.example/observation"


def test_deep_merge_keeps_other_keys_of_a_table():
    merged = deep_merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 4}, "d": {"e": 5}})
    assert merged == {"a": {"b": 4, "c": 2}, "d": {"e": 5}}


def test_environment_overrides_file(tmp_path):
    environ = {"LAB_AGENT_EXCHANGE__OAUTH__PASSWORD": "from-environment", "LAB_AGENT_WORKER__CONCURRENCY": "3"}
    settings = load_settings(written(tmp_path, VALID), environ)
    assert password(settings) == "from-environment"
    assert settings.worker.concurrency == 3
    assert settings.exchange.oauth.username == "login", "other keys of the table stay"


def test_credential_overrides_environment_without_its_line_end(tmp_path):
    """A credential overrides the environment and loses its line end."""
    environ = credentials(tmp_path, exchange__oauth__password=" from credential \n")
    environ["LAB_AGENT_EXCHANGE__OAUTH__PASSWORD"] = "from-environment"
    assert password(load_settings(written(tmp_path, VALID), environ)) == " from credential "


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"settings_exchange.oauth.password": "of the folder\n"}, "of the folder"),
        ({"settings_exchange.oauth.password": "of the folder", "exchange.oauth.password": "of the unit"}, "of the unit"),
        ({"settings_store.url": "sqlite:///a.db", "exchange.oauth.password": "of the unit"}, "of the unit"),
        ({"settings_lis-ca.pem": "a certificate", "settings_my-notes": "x", "settings_": "x"}, "from-file"),
    ],
    ids=str,
)
def test_credentials_of_a_folder_are_read(tmp_path: Path, files: dict[str, str], found: str) -> None:
    assert password(load_settings(written(tmp_path, VALID), credentials(tmp_path, **files))) == found


def test_invalid_credential_of_folder_is_named_by_its_key(tmp_path: Path) -> None:
    environ = credentials(tmp_path, **{"settings_worker.concurrency": "many", "settings_exchnge.base_url": "x"})
    (invalid, misspelt) = sorted(problems(written(tmp_path, VALID), environ), key=lambda where: "exchnge" in where)
    assert invalid == "worker.concurrency (credential worker.concurrency)"
    assert misspelt.endswith("settings_exchnge.base_url")


def test_list_is_read_from_environment_and_credential(tmp_path):
    environ = credentials(tmp_path, store__encryption_keys=f"{KEY}\nolder\n")
    keys = load_settings(written(tmp_path, VALID), environ).store.encryption_keys
    assert [key.get_secret_value() for key in keys] == [KEY, "older"]
    environ = {"LAB_AGENT_STORE__ENCRYPTION_KEYS": f"{KEY}, older"}
    assert len(load_settings(written(tmp_path, VALID), environ).store.encryption_keys) == 2


def test_adapter_tables_are_extended_from_environment(tmp_path):
    settings = load_settings(written(tmp_path, VALID), {"LAB_AGENT_LIS__FOLDER__RESULTS": "results"})
    assert settings.lis.tables["folder"] == {"orders": "orders", "results": "results"}


def test_unrelated_credentials_are_ignored(tmp_path):
    certificates = {"status-tls__crt": "x", "store-key__pem": "x"}  # like names of tables, and yet certificates
    environ = credentials(tmp_path, tls="x", ca__pem="x", **certificates)
    assert load_settings(written(tmp_path, VALID), environ)


def test_all_problems_are_reported_together_with_hints(tmp_path):
    text = VALID.replace('laboratory = "our-guid"\n', "").replace('auth_url = "https://auth.example"\n', "")
    text += "[worker]\nmode = 'observ'\npol_interval = 3\nlease = -1\n[retention]\nfailure_days = 30\n[wroker]\nmode = 1\n"
    found = problems(written(tmp_path, text), {"LAB_AGENT_EXCHNGE__BASE_URL": "x"})
    assert found["exchange.laboratory"].startswith("is missing — The laboratory's own")
    assert found["worker.mode"].endswith("did you mean 'observe'?")
    assert found["worker.pol_interval"] == "unknown key — did you mean 'poll_interval'?"
    assert found["wroker"] == "unknown key — did you mean 'worker'?"
    assert "greater than or equal to 90" in found["retention.failure_days"]
    assert found["LAB_AGENT_EXCHNGE__BASE_URL"].endswith("did you mean 'exchange'?")
    assert "worker.lease" in found
    assert "auth_url" in found["exchange.oauth"]


def test_value_of_wrong_type_has_readable_message(tmp_path):
    found = problems(written(tmp_path, VALID.replace("[store]", "[store]\nurl = 'mysql://x'")))
    assert found["store.url"].startswith("does not have the required form — Address of the database")
    assert "^(" not in found["store.url"]


def test_misplaced_key_is_shown_its_table(tmp_path):
    found = problems(written(tmp_path, VALID + "[worker]\ncall_timeout = 5\n"))
    assert found["worker.call_timeout"] == "unknown key — did you mean 'lis.call_timeout'?"


def test_invalid_variable_is_named_by_its_variable(tmp_path):
    found = problems(written(tmp_path, VALID), {"LAB_AGENT_WORKER__CONCURRENCY": "many"})
    assert list(found) == ["worker.concurrency (LAB_AGENT_WORKER__CONCURRENCY)"]


def test_contradicting_settings_are_rejected(tmp_path):
    text = VALID.replace("[exchange.contracts.C-1]", '[exchange.contracts.C-1]\nadapter = "foldr"')
    text += "[worker]\npoll_longest = 1\nlease = 20\nbackoff_first = 9\nbackoff_longest = 1\n"
    found = problems(written(tmp_path, text))
    assert {"worker.poll_longest", "worker.lease", "worker.backoff_longest", "exchange.contracts.C-1.adapter"} == found.keys()
    assert found["exchange.contracts.C-1.adapter"].endswith("did you mean 'folder'?")


def pool(name: str, pattern: str, **more: object) -> str:
    keys = {"name": name, "pattern": pattern, "last": 999, **more}
    return "[[api.pools]]\n" + "".join(
        f"{key} = {str(value).lower() if value is True else repr(value)}\n" for key, value in keys.items()
    )


def test_duplicate_pool_name_reports_both_places(tmp_path):
    found = problems(written(tmp_path, VALID + pool("main", "77###") + pool("other", "88###") + pool("main", "99###")))
    assert list(found) == ["api.pools.2.name"]
    assert "also the name of api.pools.0" in found["api.pools.2.name"]


@pytest.mark.parametrize("pattern", ["24/###", "-###", ".###", "###" + "0" * 28])
def test_pool_barcodes_failing_our_rules_are_rejected(tmp_path, pattern):
    text = VALID + pool("main", pattern)
    assert "rules.label_pattern" in problems(written(tmp_path, text))["api.pools.0.pattern"]
    assert load_settings(written(tmp_path, VALID + pool("main", pattern, second=True)), {}).api.pools
    assert load_settings(written(tmp_path, text + "[rules]\nlabel_pattern = '.+'\n"), {}).api.pools


def test_pool_with_too_short_barcodes_is_rejected(tmp_path):
    assert "as 01" in problems(written(tmp_path, VALID + pool("main", "##", last=99)))["api.pools.0.pattern"]


def test_default_adapter_without_table_is_rejected(tmp_path):
    assert "lis.default" in problems(written(tmp_path, VALID.replace('[lis.folder]\norders = "orders"', "")))


def test_adapter_that_is_no_table_is_rejected(tmp_path):
    text = VALID.replace("[lis.folder]", "[lis]\ncolect_interval = 3\n[lis.folder]")
    assert problems(written(tmp_path, text))["lis.colect_interval"].endswith("did you mean 'collect_interval'?")


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"[exchange\n", "line 1"), (b"a = 1\nb = \n", "line 2"), (b"\xff\xfe", "UTF-8 at byte 0")],
)
def test_invalid_toml_reports_its_position(tmp_path, content, says):
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    assert says in problems(path)[str(path)]


def test_missing_file_and_folder_are_distinguished(tmp_path):
    assert "no such file" in problems(tmp_path / "none.toml")[str(tmp_path / "none.toml")]
    assert "is a folder" in problems(tmp_path)[str(tmp_path)]


def test_unreadable_credentials_are_named(tmp_path):
    path = written(tmp_path, VALID)
    assert "credentials folder cannot be read" in next(
        iter(problems(path, {"CREDENTIALS_DIRECTORY": str(tmp_path / "no")}).values())
    )
    environ = credentials(tmp_path)
    bad = tmp_path / "credentials" / "exchange.oauth.password"
    bad.write_bytes(b"\xff")
    assert problems(path, environ)[str(bad)] == "is not UTF-8 — save it as UTF-8"
    if os.geteuid():
        bad.chmod(0)
        assert "cannot be read" in problems(path, environ)[str(bad)]


def test_misspelt_credential_is_named(tmp_path):
    environ = credentials(tmp_path, exchnage__oauth__password="x")
    found = problems(written(tmp_path, VALID), environ)
    assert [what for where, what in found.items() if where.endswith("exchnage.oauth.password")] == [
        "unknown table — did you mean 'exchange'?"
    ]


def test_errors_never_contain_values(tmp_path):
    text = VALID.replace('password = "from-file"', 'password = ["hunter2"]').replace(f'["{KEY}"]', '"hunter3"')
    path = written(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load_settings(path, {"LAB_AGENT_STORE__URL": "mysql://user:hunter4@host/x"})
    assert "hunter" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_secrets_are_masked_everywhere(tmp_path):
    text = VALID.replace("[store]", '[store]\nurl = "postgresql+psycopg://user:hunter2@host/db"')
    text = text.replace('orders = "orders"', 'orders = "orders"\npassword = "hunter3"\napi_key = "hunter4"')
    settings = load_settings(written(tmp_path, text), {"LAB_AGENT_EXCHANGE__PROXY": "http://user:hunter5@proxy:3128"})
    shown = "\n".join(f"{key} = {value}" for key, value in iter_masked_values(settings))
    assert "hunter" not in shown
    assert KEY not in shown
    assert f"postgresql+psycopg://user:{MASK}@host/db" in shown
    assert mask_secrets(settings)["lis"]["folder"] == {"orders": "orders", "password": MASK, "api_key": MASK}
    assert "hunter2" not in repr(settings)
    assert KEY not in repr(settings)


def test_url_without_password_is_unchanged():
    assert mask_url_password("https://host:8080/path") == "https://host:8080/path"
    assert mask_url_password("http://user@host/") == "http://user@host/"


def test_settings_are_immutable(tmp_path):
    settings = load_settings(written(tmp_path, VALID), {})
    with pytest.raises(ValueError, match="frozen"):
        settings.worker.mode = "observe"


OF_THE_WORKER = {
    "webhook without its address": '[notify.webhook.chat]\ntemplate = "mattermost"\n',
    "mail without its password": '[notify.email.it]\nhost = "m"\nuser = "u"\nsender = "a@b.test"\nrecipients = ["a@b.test"]\n',
    "identity provider without its client": '[status.oidc]\nissuer = "https://id.example"\n',
    "certificate of the worker's unit": '[notify.ping]\nca_file = "/run/credentials/lab-agent.service/ca.pem"\n',
    "interval that contradicts another": "[worker]\npoll_interval = 60\npoll_longest = 1\n",
}


@pytest.mark.parametrize("model", [ApiGroups, BackupGroups, StoreGroups])
@pytest.mark.parametrize("case", OF_THE_WORKER)
def test_program_checks_the_groups_it_reads(tmp_path, case, model):
    path = written(tmp_path, VALID.replace('password = "from-file"\n', "") + OF_THE_WORKER[case])
    assert load_groups(model, path, {}).store.encryption_keys
    assert problems(path)


@pytest.mark.parametrize("model", [ApiGroups, BackupGroups])
def test_unknown_table_is_told_to_every_program(tmp_path, model):
    with pytest.raises(SettingsError) as caught:
        load_groups(model, written(tmp_path, VALID + "[notifi]\nx = 1\n"), {})
    assert [each.where for each in caught.value.problems] == ["notifi"]


def test_contradiction_is_told_to_whoever_reads_both(tmp_path):
    pool = '[[api.pools]]\nname = "p"\npattern = "##"\nlast = 9\n'
    path = written(tmp_path, VALID + pool + '[rules]\nlabel_pattern = "[A-Z]+"\n')
    with pytest.raises(SettingsError) as caught:
        load_groups(ApiGroups, path, {})
    assert [each.where for each in caught.value.problems] == ["api.pools.0.pattern"]
    assert load_groups(BackupGroups, path, {})


def test_credentials_that_are_not_given_do_not_count(tmp_path):
    environ = credentials(tmp_path, exchange__oauth__client_secret="c", exchange__oauth__password="p")
    found = load_groups(ApiGroups, without_password(tmp_path), environ, is_given=lambda name: name.endswith("secret"))
    assert found.exchange.oauth.client_secret is not None
    assert found.exchange.oauth.password is None
