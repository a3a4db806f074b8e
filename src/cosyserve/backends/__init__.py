"""Other runtimes behind the Protocols of `contracts`."""
