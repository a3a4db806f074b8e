"""Other services' WebSockets for text in pieces, so that their clients find them here."""
