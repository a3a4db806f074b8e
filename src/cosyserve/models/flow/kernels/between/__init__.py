"""What lies between two attentions of the U-Net, for large packs on a Hopper GPU.

A launch computes the rest of a transformer block and the next one's query, key and value; what
either makes in between is never written. This is in Gluon, Triton's language below Triton, which
changes with each of its versions.
"""
