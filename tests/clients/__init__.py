"""The field's own clients, each in a script and an environment that `make test-clients` makes."""
