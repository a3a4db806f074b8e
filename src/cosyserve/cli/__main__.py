"""`python -m cosyserve.cli` is the command `cosyserve`. Knows nothing else."""

from cosyserve.cli import main

main()
