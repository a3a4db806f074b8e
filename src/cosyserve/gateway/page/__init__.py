"""The page at `/`, for people: a text spoken while they listen, and the server's figures."""
