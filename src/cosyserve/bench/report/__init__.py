"""A run for people and programs: a report, a table, a picture."""
