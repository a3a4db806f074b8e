"""Everything that the doctor looks at."""

from __future__ import annotations

from pathlib import Path

from cosyserve.doctor.engines import engines
from cosyserve.doctor.finding import Finding
from cosyserve.doctor.first_audio import first_audio
from cosyserve.doctor.machine import machine
from cosyserve.doctor.model import model_parts
from cosyserve.doctor.servers import servers
from cosyserve.settings import Settings


def examine(settings: Settings, *, speak: bool = False) -> list[Finding]:
    """The findings of this machine and of the settings' model; with `speak`, of its speech, too."""
    findings = [*machine(settings.home), *servers(settings.port), *model_parts(settings.model)]
    if Path(settings.model).is_dir():
        findings += engines(Path(settings.model).absolute().parent)
    if speak:
        findings.append(first_audio(settings.model, settings.device))
    return findings
