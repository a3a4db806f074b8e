"""The networks as plain torch modules.

They know their sizes and tensors: no file, no request, no server, no setting.
"""
