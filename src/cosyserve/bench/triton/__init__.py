"""Load on Triton servers, in the original's words and files."""
