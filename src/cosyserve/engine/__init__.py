"""Runs models for many sessions at once. Knows no protocol and no client.

Import from its modules: `remote` and `messages`, the gateway's side, cost no torch.
"""
