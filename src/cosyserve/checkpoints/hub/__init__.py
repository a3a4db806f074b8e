"""Downloads of published models from Hugging Face and ModelScope."""
