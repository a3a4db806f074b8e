"""Speech with an LM and a token2wav that run apart."""
