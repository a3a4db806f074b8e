"""`python -m cosyserve` is the command `cosyserve`."""

from cosyserve.cli import main

main()
