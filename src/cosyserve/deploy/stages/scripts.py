"""The original's two scripts, by their flow: which stages there are, and a part of them."""

from __future__ import annotations

from cosyserve.deploy.stages import dit, unet
from cosyserve.deploy.stages.deployment import Deployment
from cosyserve.deploy.stages.stage import ServerCommand, Stage
from cosyserve.errors import InputError

SCRIPTS = {"unet": unet.stages, "dit": dit.stages}


def chosen(deployment: Deployment, first: int, last: int) -> list[Stage]:
    """The stages from `first` to `last`."""
    stages = SCRIPTS[deployment.flow](deployment)
    numbers = [stage.number for stage in stages]
    if not numbers[0] <= first <= last <= numbers[-1]:
        titles = ", ".join(f"{stage.number} ({stage.title})" for stage in stages)
        raise InputError(
            f"--stage {first} --stop-stage {last}: give two of {titles}, the lower one first"
        )
    some = [stage for stage in stages if first <= stage.number <= last]
    for stage in some:
        _check_ports(stage)
    return some


def _check_ports(stage: Stage) -> None:
    """Refuses a stage whose servers would listen on one port."""
    servers = [command for command in stage.commands if isinstance(command, ServerCommand)]
    taken: set[int] = set()
    for port in (port for server in servers for port in server.ports):
        if port in taken:
            raise InputError(
                f"stage {stage.number} ({stage.title}) needs port {port} twice: choose "
                "--http-port, --grpc-port, --metrics-port and --llm-port so that all servers fit"
            )
        taken.add(port)
