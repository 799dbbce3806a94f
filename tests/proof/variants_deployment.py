"""Known-bad variants for the proof `deployment`: of the units, the image and the demo."""

from __future__ import annotations

from tests.proof.mutants import Mutant

_UNITS = "acceptance/deployment/test_systemd_units.py"
_IMAGE = "acceptance/deployment/test_dockerfile.py"

VARIANTS: tuple[Mutant, ...] = (
    Mutant(
        name="stop_cut_short",
        what="lets systemd kill the agent before running work can be finished",
        file="systemd/lab-agent.service",
        old="TimeoutStopSec=60\n",
        new="TimeoutStopSec=20\n",
        found_by="deployment",
        tests=(_UNITS,),
    ),
    Mutant(
        name="secrets_of_the_agent_alone",
        what="hands the secrets to the agent's unit alone, so that lab-api and the backup find the settings invalid",
        file="systemd/lab-api.service",
        old="LoadCredential=settings:/etc/lab-agent/credentials\n",
        new="",
        found_by="deployment",
        tests=(_UNITS,),
    ),
    Mutant(
        name="builds_of_one_version",
        what="gives all builds of a release one version, so that pip and apt take the second for installed",
        file="tools/version.py",
        old='    return f"{RELEASE}+{build}" if build else RELEASE\n',
        new="    return RELEASE\n",
        found_by="deployment",
        tests=("acceptance/deployment/test_wheel.py::test_every_build_is_another_and_later_version",),
    ),
    Mutant(
        name="health_not_asked",
        what="calls a container sound whatever its program answers",
        file="Dockerfile",
        old="urllib.request.urlopen(os.environ['HEALTH_URL'], timeout=4)",
        new="os.environ['HEALTH_URL']",
        found_by="deployment",
        tests=(f"{_IMAGE}::test_health_check_reports_live_failing_and_missing_process",),
    ),
    Mutant(
        name="container_of_root",
        what="runs the programs of a container as root",
        file="Dockerfile",
        old="USER lab-agent\n",
        new="USER root\n",
        found_by="deployment",
        tests=(f"{_IMAGE}::test_run_stage_has_environment_alone_and_unprivileged_user",),
    ),
    Mutant(
        name="agent_may_write_everywhere",
        what="lets the agent write to the whole machine",
        file="systemd/lab-agent.service",
        old="ProtectSystem=strict\n",
        new="ProtectSystem=no\n",
        found_by="deployment",
        tests=(_UNITS,),
    ),
)
