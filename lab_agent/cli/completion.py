"""`lab-agent completion`: the script by which a shell completes commands and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer._completion_shared import get_completion_script

from lab_agent.cli.lazy_commands import COMPLETION_VARIABLE
from lab_agent.cli.output import print_raw
from lab_agent.shared.systemd_units import command_name


class Shell(StrEnum):
    """The shells whose scripts there are."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print the script for completion in bash, zsh or fish.

    It completes `lab-agentctl` where that is what is typed on this machine. bash: write it to
    `/etc/bash_completion.d/lab-agent`; fish: to `~/.config/fish/completions/lab-agent.fish`. zsh: write it to a file, and
    `source` that file in `~/.zshrc`, after `compinit`.
    """
    print_raw(get_completion_script(prog_name=command_name().split()[0], complete_var=COMPLETION_VARIABLE, shell=shell.value))
