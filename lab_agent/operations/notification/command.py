"""The channel that runs a program, without a shell; a program that takes too long is ended with all that it started."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from subprocess import DEVNULL, PIPE

from lab_agent.operations.notification.channel import NotificationNotSent
from lab_agent.operations.notification.message import Message
from lab_agent.operations.notification.payloads import to_json
from lab_agent.settings.notify import CommandSettings
from lab_agent.settings.sources import environment_of_others
from lab_agent.shared import exact_json


@dataclass(frozen=True, slots=True)
class CommandChannel:
    """Runs the program of its settings. `shows_errors`: what it writes on standard error is shown, as in a test by a person."""

    name: str
    settings: CommandSettings
    shows_errors: bool = False

    @property
    def timeout(self) -> float:
        """Seconds."""
        return self.settings.timeout

    async def send(self, message: Message) -> str:
        """Run the program with the message on its standard input; anything but exit code 0 is a failure."""
        program = self.settings.argv[0]
        try:
            process = await asyncio.create_subprocess_exec(
                *self.settings.argv,
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=None if self.shows_errors else DEVNULL,
                start_new_session=True,
                env=_environment(message),
            )
        except OSError as exc:
            raise NotificationNotSent(f"{program} cannot be started: {exc.strerror or 'the system refuses it'}") from exc
        except ValueError as exc:  # a null character, which no program can be given
            raise NotificationNotSent(f"{program} cannot be started: `argv` has a character that no program takes") from exc
        try:
            async with asyncio.timeout(self.settings.timeout):
                await process.communicate(exact_json.dumps(to_json(message)) + b"\n")
        except TimeoutError:
            raise NotificationNotSent(f"{program} did not end within {self.settings.timeout:g} s, and was ended") from None
        finally:
            await _end(process)
        if process.returncode:
            raise NotificationNotSent(f"{program} ended with exit code {process.returncode}")
        return ""


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the program if it still runs, with whatever it has started; what it left when it ended well may go on."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _environment(message: Message) -> dict[str, str]:
    return environment_of_others(os.environ) | {
        "NOTIFICATION_TITLE": message.title,
        "NOTIFICATION_SEVERITY": message.severity.value,
    }
