"""Voices: learning one from a recording, its file, its store.

Knows no request and no server. Import from its modules: `file` and `store` cost no torch.
"""
