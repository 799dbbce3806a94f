"""`[notify]`: what is refused, and that secrets come as credentials."""

import pytest
from pydantic import ValidationError

from lab_agent.settings.notify import EmailSettings, NotifySettings, WebhookSettings
from lab_agent.settings.root import load_settings
from tests.integration.cli.conftest import SETTINGS

MAIL = {"host": "mail.example", "sender": "a@lab.example", "recipients": ["b@lab.example"]}


@pytest.mark.parametrize(
    "wrong",
    [
        {"security": "none"},
        {"user": "x"},
        {"sender": "a@lab.example\r\nBcc: c@evil.example"},
        {"recipients": ["Name <a@lab.example>"]},
        {"recipients": []},
        {"host": "mail.example\r\nX"},
    ],
)
def test_mail_settings_that_are_refused(wrong):
    EmailSettings.model_validate(MAIL)
    with pytest.raises(ValidationError):
        EmailSettings.model_validate(MAIL | wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "http://chat.example/hook"},
        {"url": "https://user:password@chat.example/hook"},
        {"secret": "short"},
        {"secret": "whsec_no base64!"},
        {"template": "telegram"},
    ],
)
def test_webhook_settings_that_are_refused(wrong):
    right = {"url": "https://chat.example/hook"}
    WebhookSettings.model_validate(right)
    with pytest.raises(ValidationError) as caught:
        WebhookSettings.model_validate(right | wrong)
    assert "password" not in str(caught.value)


def test_ports_follow_the_encryption():
    def port(**fields):
        return EmailSettings.model_validate(MAIL | fields).real_port

    assert (port(), port(security="tls"), port(port=2525)) == (587, 465, 2525)
    assert port(security="none", host="localhost") == 25


def test_secrets_come_as_credentials(tmp_path):
    config, credentials = tmp_path / "lab-agent.toml", tmp_path / "credentials"
    credentials.mkdir()
    config.write_text(
        SETTINGS
        + '[notify.email.it]\nhost = "m"\nuser = "u"\nsender = "a@l"\nrecipients = ["b@l"]\n'
        + '[notify.webhook.chat]\ntemplate = "slack"\n'
    )
    (credentials / "notify.email.it.password").write_text("a mail password\n")
    (credentials / "notify.webhook.chat.url").write_text("https://chat.example/hook\n")
    notify = load_settings(config, {"CREDENTIALS_DIRECTORY": str(credentials)}).notify
    assert notify.email["it"].password.get_secret_value() == "a mail password"
    assert notify.webhook["chat"].url.get_secret_value() == "https://chat.example/hook"


def test_names_of_channels_are_plain():
    with pytest.raises(ValidationError):
        NotifySettings.model_validate({"email": {"It Department": MAIL}})
    assert [name for name, _ in NotifySettings.model_validate({"email": {"it": MAIL}}).channels()] == ["email.it"]
