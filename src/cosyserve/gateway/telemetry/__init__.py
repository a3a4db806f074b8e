"""What is known of every request: its record, its line in the log, figures."""
