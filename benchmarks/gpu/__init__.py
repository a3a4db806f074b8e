"""What the engine does on one GPU: `python -m benchmarks.gpu`."""
