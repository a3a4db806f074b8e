"""Times of words against those that are known: `python -m benchmarks.word_times`."""
