"""`lab-agent init --systemd`: what the units of a site need: user, folders, secrets, and a drop-in for folders elsewhere.

User and folders are those of `systemd/sysusers.conf` and `systemd/tmpfiles.conf`, which the package has used before.
`systemd-tmpfiles` alone sets owners and modes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from lab_agent.settings.sources import ENVIRONMENT_PREFIX
from lab_agent.shared.atomic_file import write_atomically
from lab_agent.shared.errors import InputError, LabAgentError
from lab_agent.shared.shipped_files import shipped_path
from lab_agent.shared.systemd_units import SETTINGS_NAME, WORKER, unit_name

ROOT = Path("/")
_SITE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST_SITE = 20
"""Characters; a user's name has 31 at most."""
ENCRYPTION_KEYS = "store.encryption_keys"
_SECRET_ANSWERS = {"client_secret": "exchange.oauth.client_secret", "password": "exchange.oauth.password"}


@dataclass(frozen=True, slots=True)
class SystemdSite:
    """The only site (`lab-agent.service`), or one of several (`lab-agent@SITE.service`)."""

    site: str | None

    @classmethod
    def named(cls, site: str | None) -> SystemdSite:
        """Raise `InputError` for a name that no unit and no user can have, and for who is not root."""
        if site is not None and (not _SITE.fullmatch(site) or len(site) > _LONGEST_SITE):
            raise InputError(f"A site's name is {_LONGEST_SITE} small letters, digits and hyphens at most, a letter first.")
        if not os.access(ROOT / "etc", os.W_OK):
            raise InputError("`lab-agent init --systemd` writes to /etc: run it as root.")
        return cls(site)

    @property
    def name(self) -> str:
        """The site's user, and its folders below /etc, /var/lib and /var/backups."""
        return "lab-agent" if self.site is None else f"lab-agent-{self.site}"

    @property
    def settings(self) -> Path:
        """The settings file that the units name."""
        return ROOT / "etc" / self.name / SETTINGS_NAME

    @property
    def credentials(self) -> Path:
        """The folder of the secrets."""
        return self.settings.parent / "credentials"

    @property
    def backups(self) -> Path:
        """The folder that the unit of the backup may write to."""
        return ROOT / "var" / "backups" / self.name

    @property
    def state(self) -> Path:
        """The working directory of the programs."""
        return ROOT / "var" / "lib" / self.name

    @property
    def control(self) -> str:
        """How this site's commands begin."""
        return "lab-agentctl" if self.site is None else f"lab-agentctl --site {self.site}"

    @property
    def target(self) -> str:
        """The target that starts the site."""
        return "lab-agent.target" if self.site is None else f"lab-agent@{self.site}.target"

    def defaults(self) -> Mapping[str, str]:
        """Answers that depend on where the programs run."""
        lis = self.state / "lis"
        database = f"sqlite:///{self.state / 'lab-agent.db'}"
        return {"store": database, "orders": f"{lis}/orders", "results": f"{lis}/results", "hl7v2_folder": f"{lis}/hl7v2"}

    def prepare(self) -> None:
        """Make the user and the folders, where they are missing."""
        os.umask(0o022)  # what is made beside the settings is read by the programs, whatever the umask of root's shell
        for program, *options in (("systemd-sysusers",), ("systemd-tmpfiles", "--create")):
            text = shipped_path(f"systemd/{program.removeprefix('systemd-')}.conf").read_text(encoding="utf-8")
            _run([program, *options, "-"], text.replace("lab-agent", self.name))

    def store_secrets(self, answers: Mapping[str, str], key: str) -> tuple[dict[str, str], dict[str, str]]:
        """Write the secrets among the answers, and the encryption key, unless there is one: it opens the database.

        Gives the answers without secrets, and the secrets as variables of the environment.
        """
        hidden = {name: setting for name, setting in _SECRET_ANSWERS.items() if answers.get(name)}
        if urlsplit(answers["store"]).password:
            hidden["store"] = "store.url"
        file = self.credentials / ENCRYPTION_KEYS
        secrets = {setting: answers[name] for name, setting in hidden.items()}
        secrets[ENCRYPTION_KEYS] = file.read_text(encoding="utf-8").strip() if file.exists() else key
        for name, value in secrets.items():
            write_atomically(self.credentials / name, f"{value}\n".encode())
        variables = {f"{ENVIRONMENT_PREFIX}{name.upper().replace('.', '__')}": value for name, value in secrets.items()}
        return {**answers, **dict.fromkeys(hidden, "")}, variables

    def hand_over(self, lis_folders: Sequence[Path]) -> None:
        """Let the programs read their settings, and use the folders of the laboratory system; those that are there are kept."""
        missing = dict.fromkeys(each for folder in lis_folders for each in self._missing(folder))
        made = [f"d {_quote(folder)} 0770 {self.name} {self.name}" for folder in missing]
        _run(["systemd-tmpfiles", "--create", "-"], "\n".join([f"z {self.settings} 0640 root {self.name}", *made, ""]))
        self._write_drop_in([folder for folder in lis_folders if not folder.is_relative_to(self.state)])
        if (ROOT / "run" / "systemd" / "system").is_dir():
            _run(["systemctl", "daemon-reload"], "")

    def _write_drop_in(self, elsewhere: Sequence[Path]) -> None:
        """Let the agent write to folders outside its own, and to those of a former answer no more.

        A folder that is missing at the start (a share that is out) does not keep the agent from starting, and from telling it.
        """
        drop_in = ROOT / "etc" / "systemd" / "system" / f"{unit_name(WORKER, self.site)}.d" / "lis.conf"
        if not elsewhere:
            drop_in.unlink(missing_ok=True)
            return
        drop_in.parent.mkdir(parents=True, exist_ok=True)
        paths = " ".join(_quote(f"-{folder}") for folder in elsewhere)
        write_atomically(drop_in, f"[Service]\nReadWritePaths={paths}\n".encode(), 0o644)

    def _missing(self, folder: Path) -> list[Path]:
        """What is missing of a folder of the laboratory system, and of folders of the programs that it is in; outermost first.

        They are no part of `tmpfiles.conf`, which every boot applies: who lets a group in there is not locked out again.
        """
        chain = [each for each in (folder, *folder.parents) if each == folder or self.state in each.parents]
        return [each for each in reversed(chain) if not each.exists()]


def _quote(path: Path | str) -> str:
    """A path as a word of a configuration file of systemd."""
    return json.dumps(str(path), ensure_ascii=False).replace("%", "%%")


def _run(command: Sequence[str], text: str) -> None:
    """Raises `InputError` without systemd, and `LabAgentError` with what the program says."""
    try:
        subprocess.run(command, input=text, capture_output=True, text=True, check=True)  # noqa: S603 - no word of a person in it
    except FileNotFoundError as exc:
        raise InputError(f"There is no {command[0]} here: leave out --systemd.") from exc
    except subprocess.CalledProcessError as exc:
        said = exc.stderr.strip() or f"exit code {exc.returncode}"
        raise LabAgentError(f"{command[0]}: {said} - correct this, and run it again with --force") from exc
