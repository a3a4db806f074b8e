"""The speech LM: text and speech tokens in, speech tokens out."""
