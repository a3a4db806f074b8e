"""The field's own clients, each in a script that the environment of `make test-clients` runs."""
