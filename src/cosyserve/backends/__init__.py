"""Other runtimes behind the Protocols of `contracts`. Knows no session and no schedule."""
