"""Everything that the doctor looks at."""

from __future__ import annotations

import os
from pathlib import Path

from cosyserve.doctor.engines import engines
from cosyserve.doctor.finding import Finding
from cosyserve.doctor.first_audio import first_audio
from cosyserve.doctor.machine import machine
from cosyserve.doctor.model import model_parts
from cosyserve.doctor.servers import servers
from cosyserve.models.kernels import use_kernels
from cosyserve.settings import Settings


def examine(settings: Settings, *, speak: bool = False) -> list[Finding]:
    """The findings of this machine and of the settings' models; with `speak`, of their speech,
    too."""
    use_kernels(settings.kernels)
    findings = [*machine(settings.home), *servers(settings.port)]
    for model in settings.models:
        findings += model_parts(model)
        if os.path.isdir(model):
            findings += engines(Path(model).absolute().parent)
        if speak:
            findings.append(first_audio(model, settings.device))
    return findings
