"""What an instance of any of our models does: it loads, answers, tells its numbers and ends."""
