"""The networks as plain torch modules, and reading their checkpoints.

Knows no request, no server, no setting.
"""
