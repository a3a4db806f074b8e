"""Folders of weights in, a model out: published, native, downloaded.

This room is the border against hostile files: everything in a folder is read as plain data.
"""
