"""The Triton side: what its Python models run, its server process, its clients.

Import from its modules: `process` and the clients import no torch.
"""
