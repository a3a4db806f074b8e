"""Voices: learning one from a recording, its file, its store.

Import from its modules: all but `shipped` and `spk2info` cost no torch.
"""
