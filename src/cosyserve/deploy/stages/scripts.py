"""The original's two scripts, by their flow: which stages there are, and a part of them."""

from __future__ import annotations

from cosyserve.deploy.stages import dit, unet
from cosyserve.deploy.stages.deployment import Deployment
from cosyserve.deploy.stages.stage import Stage
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
    return [stage for stage in stages if first <= stage.number <= last]
