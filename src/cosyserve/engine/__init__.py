"""Runs models for many sessions at once: workers talk, scheduling decides, compute computes.

Import from its modules: the gateway's side of `workers` costs no torch.
"""
