"""The field's own clients, each in a script that is run by the environment of `make test-clients`."""
