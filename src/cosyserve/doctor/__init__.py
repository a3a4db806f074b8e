"""What `cosyserve doctor` finds: this machine, servers on it, the model folder, what to do."""

from cosyserve.doctor.examine import examine
from cosyserve.doctor.finding import Finding

__all__ = ["Finding", "examine"]
