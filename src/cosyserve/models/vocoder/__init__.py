"""The vocoder HiFT: mel frames in, samples out."""
