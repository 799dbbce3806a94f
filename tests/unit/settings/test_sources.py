"""Sources, their order, and errors that come all at once."""

import os
from pathlib import Path

import pytest

from lab_agent.settings.introspection import MASK, iter_masked_values, mask_secrets, mask_url_password
from lab_agent.settings.root import ApiGroups, BackupGroups, Settings, StoreGroups, load_groups, load_settings
from lab_agent.shared.errors import SettingsError

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


def test_missing_sign_in_secret_is_rejected_where_it_is_needed(tmp_path: Path) -> None:
    (message,) = problems(without_password(tmp_path)).items()
    hint = "set it, or give it as the credential exchange.oauth.password"
    assert message == ("exchange.oauth.password", f"is missing; the grant 'password' needs it — {hint}")
    assert password(load_settings(without_password(tmp_path), credentials(tmp_path, exchange__oauth__password="p"))) == "p"
    assert load_settings(without_password(tmp_path), {}, requires_login=False).exchange.oauth.password is None


def test_sources_override_each_other_in_their_order(tmp_path: Path) -> None:
    """The file alone is enough; the environment comes before it, and before that a credential, which loses its line end."""
    file = written(tmp_path, VALID)
    settings = load_settings(file, {})
    assert (password(settings), settings.lis.tables["folder"]) == ("from-file", {"orders": "orders"})
    systems = (settings.report_system, settings.observation_system)
    assert systems == ("https://codes.example/report", "https://codes.example/observation")
    environ = {
        "LAB_AGENT_EXCHANGE__OAUTH__PASSWORD": "from-environment",
        "LAB_AGENT_WORKER__CONCURRENCY": "3",
        "LAB_AGENT_LIS__FOLDER__RESULTS": "results",
        "LAB_AGENT_STORE__ENCRYPTION_KEYS": f"{KEY}, older",
    }
    settings = load_settings(file, environ)
    assert (password(settings), settings.worker.concurrency) == ("from-environment", 3)
    assert settings.exchange.oauth.username == "login", "other keys of the table stay"
    assert settings.lis.tables["folder"] == {"orders": "orders", "results": "results"}
    assert [key.get_secret_value() for key in settings.store.encryption_keys] == [KEY, "older"]
    given = {"exchange__oauth__password": " from credential \n", "store__encryption_keys": f"{KEY}\noldest\n"}
    settings = load_settings(file, environ | credentials(tmp_path, **given))
    assert password(settings) == " from credential "
    assert [key.get_secret_value() for key in settings.store.encryption_keys] == [KEY, "oldest"]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"settings_exchange.oauth.password": "of the folder\n"}, "of the folder"),
        ({"settings_exchange.oauth.password": "of the folder", "exchange.oauth.password": "of the unit"}, "of the unit"),
        ({"settings_lis-ca.pem": "a certificate", "settings_my-notes": "x", "settings_": "x"}, "from-file"),
    ],
    ids=str,
)
def test_credentials_of_a_folder_are_read(tmp_path: Path, files: dict[str, str], found: str) -> None:
    assert password(load_settings(written(tmp_path, VALID), credentials(tmp_path, **files))) == found


def test_unrelated_credentials_are_ignored(tmp_path):
    certificates = {"status-tls__crt": "x", "store-key__pem": "x"}  # like names of tables, and yet certificates
    environ = credentials(tmp_path, tls="x", ca__pem="x", **certificates)
    assert load_settings(written(tmp_path, VALID), environ)


def changed(before: str, after: str) -> str:
    assert before in VALID
    return VALID.replace(before, after)


LABEL_RULE = "rules.label_pattern"


def pool(name: str, pattern: str, **more: object) -> str:
    keys = {"name": name, "pattern": pattern, "last": 999, **more}
    return "[[api.pools]]\n" + "".join(
        f"{key} = {str(value).lower() if value is True else repr(value)}\n" for key, value in keys.items()
    )


@pytest.mark.parametrize(
    ("text", "environ", "where", "says"),
    [
        (changed('laboratory = "our-guid"\n', ""), {}, "exchange.laboratory", "is missing — The laboratory's own"),
        (changed('auth_url = "https://auth.example"\n', ""), {}, "exchange.oauth", "auth_url"),
        (VALID + "[worker]\nmode = 'observ'\n", {}, "worker.mode", "did you mean 'observe'?"),
        (VALID + "[worker]\npol_interval = 3\n", {}, "worker.pol_interval", "unknown key — did you mean 'poll_interval'?"),
        (VALID + "[worker]\ncall_timeout = 5\n", {}, "worker.call_timeout", "did you mean 'lis.call_timeout'?"),
        (VALID + "[worker]\npoll_longest = 1\n", {}, "worker.poll_longest", ""),
        (VALID + "[worker]\nlease = 20\n", {}, "worker.lease", ""),
        (VALID + "[worker]\nbackoff_first = 9\nbackoff_longest = 1\n", {}, "worker.backoff_longest", ""),
        (VALID + "[wroker]\nmode = 1\n", {}, "wroker", "unknown key — did you mean 'worker'?"),
        (VALID + "[api]\npublic_url = 'C-100'\n", {}, "api.public_url", "is not an http or https address"),
        (VALID + "[monitoring]\napi_address = '<address>'\n", {}, "monitoring.api_address", "is still a placeholder"),
        (VALID, {"LAB_AGENT_WORKER__CONCURRENCY": "many"}, "worker.concurrency (LAB_AGENT_WORKER__CONCURRENCY)", ""),
        (changed("[store]", "[store]\nurl = 'mysql://x'"), {}, "store.url", "required form — Address of the database"),
        (changed("C-1]", 'C-1]\nadapter = "foldr"'), {}, "exchange.contracts.C-1.adapter", "did you mean 'folder'?"),
        (changed('[lis.folder]\norders = "orders"', ""), {}, "lis.default", ""),
        (VALID + pool("a", "7###") + pool("b", "8###") + pool("a", "9###"), {}, "api.pools.2.name", "name of api.pools.0"),
        (VALID + pool("main", "##", last=99), {}, "api.pools.0.pattern", "as 01"),
        *((VALID + pool("p", f"{odd}###"), {}, "api.pools.0.pattern", LABEL_RULE) for odd in ("24/", "-", ".", "0" * 28)),
        (b"[exchange\n", {}, "settings.toml", "line 1"),
        (b"\xff\xfe", {}, "settings.toml", "UTF-8 at byte 0"),
        (VALID, {"CREDENTIALS_DIRECTORY": "/no/such"}, "/no/such", "credentials folder cannot be read"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 40 else "",
)
def test_problem_is_told_with_place_and_hint(
    tmp_path: Path, text: str | bytes, environ: dict[str, str], where: str, says: str
) -> None:
    path = written(tmp_path, text) if isinstance(text, str) else tmp_path / "settings.toml"
    if isinstance(text, bytes):
        path.write_bytes(text)
    found = problems(path, environ)
    assert [each.removeprefix(f"{tmp_path}/") for each in found] == [where]
    assert says in next(iter(found.values()))
    assert "^(" not in str(found), "a pattern is no help"


def test_all_problems_are_reported_together(tmp_path: Path) -> None:
    text = changed('laboratory = "our-guid"\n', "") + "[worker]\nmode = 'observ'\nlease = -1\n[wroker]\nmode = 1\n"
    found = problems(written(tmp_path, text), {"LAB_AGENT_EXCHNGE__BASE_URL": "x"})
    assert found.keys() == {"exchange.laboratory", "worker.mode", "worker.lease", "wroker", "LAB_AGENT_EXCHNGE__BASE_URL"}


@pytest.mark.parametrize("pattern", ["24/###", "-###", ".###", "###" + "0" * 28])
def test_odd_pool_is_taken_for_second_barcodes_or_by_a_rule(tmp_path: Path, pattern: str) -> None:
    assert load_settings(written(tmp_path, VALID + pool("main", pattern, second=True)), {}).api.pools
    rule = "[rules]\nlabel_pattern = '.+'\n"
    assert load_settings(written(tmp_path, VALID + pool("main", pattern) + rule), {}).api.pools


def test_missing_file_and_folder_are_distinguished(tmp_path: Path) -> None:
    assert "no such file" in problems(tmp_path / "none.toml")[str(tmp_path / "none.toml")]
    assert "is a folder" in problems(tmp_path)[str(tmp_path)]


def test_unreadable_or_misspelt_credential_is_named(tmp_path: Path) -> None:
    files = {"exchnage.oauth.password": "x", "settings_exchnge.base_url": "x", "settings_worker.concurrency": "many"}
    path, environ = written(tmp_path, VALID), credentials(tmp_path, **files)
    found, folder = problems(path, environ), tmp_path / "credentials"
    assert found[str(folder / "exchnage.oauth.password")] == "unknown table — did you mean 'exchange'?"
    assert {str(folder / "settings_exchnge.base_url"), "worker.concurrency (credential worker.concurrency)"} < found.keys()
    bad = folder / "exchange.oauth.password"
    bad.write_bytes(b"\xff")
    assert problems(path, environ)[str(bad)] == "is not UTF-8 — save it as UTF-8"
    if os.geteuid():
        bad.chmod(0)
        assert "cannot be read" in problems(path, environ)[str(bad)]


def test_errors_never_contain_values(tmp_path):
    text = VALID.replace('password = "from-file"', 'password = ["hunter2"]').replace(f'["{KEY}"]', '"hunter3"')
    path = written(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load_settings(path, {"LAB_AGENT_STORE__URL": "mysql://user:hunter4@host/x"})
    assert "hunter" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_secrets_are_masked_everywhere(tmp_path: Path) -> None:
    text = VALID.replace("[store]", '[store]\nurl = "postgresql+psycopg://user:hunter2@host/db"')
    text = text.replace('orders = "orders"', 'orders = "orders"\npassword = "hunter3"\napi_key = "hunter4"')
    mail = '[notify.email.it]\nhost = "m"\nuser = "u"\npassword = "hunter6"\nsender = "a@b.test"\nrecipients = ["a@b.test"]\n'
    hooks = '[notify.webhook.chat]\nurl = "https://c.example/hunter7"\nsecret = "hunter8 and twenty-four bytes more"\n'
    ping = '[notify.ping]\nurl = "https://p.example/hunter9"\n'
    path = written(tmp_path, text + mail + hooks + ping)
    settings = load_settings(path, {"LAB_AGENT_EXCHANGE__PROXY": "http://user:hunter5@proxy:3128"})
    shown = "\n".join(f"{key} = {value}" for key, value in iter_masked_values(settings))
    assert ("hunter" in shown, KEY in shown, "notify.email.it.host = m" in shown) == (False, False, True)
    assert f"postgresql+psycopg://user:{MASK}@host/db" in shown
    assert mask_secrets(settings)["lis"]["folder"] == {"orders": "orders", "password": MASK, "api_key": MASK}
    assert not [secret for secret in ("hunter2", KEY) if secret in repr(settings)]
    for plain in ("https://host:8080/path", "http://user@host/"):
        assert mask_url_password(plain) == plain


@pytest.mark.parametrize("model", [ApiGroups, BackupGroups, StoreGroups])
def test_program_checks_the_groups_it_reads(tmp_path, model):
    """What is wrong for the worker alone stops no other program, such as a secret that only its unit gets."""
    for table in (
        '[notify.webhook.chat]\ntemplate = "mattermost"\n',
        '[notify.ping]\nca_file = "/run/credentials/lab-agent.service/ca.pem"\n',
        "[worker]\npoll_interval = 60\npoll_longest = 1\n",
    ):
        path = written(tmp_path, VALID.replace('password = "from-file"\n', "") + table)
        assert load_groups(model, path, {}).store.encryption_keys
        assert problems(path)


def test_unknown_table_is_told_to_all_contradiction_to_who_reads_both(tmp_path: Path) -> None:
    for model in (ApiGroups, BackupGroups):
        with pytest.raises(SettingsError) as caught:
            load_groups(model, written(tmp_path, VALID + "[notifi]\nx = 1\n"), {})
        assert [each.where for each in caught.value.problems] == ["notifi"]
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
