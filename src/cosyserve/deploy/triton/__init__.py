"""A repository for a Triton server: written, checked, kept here."""
