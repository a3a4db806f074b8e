"""How words are said, by those who ask: lexicons, phonemes, SSML."""
