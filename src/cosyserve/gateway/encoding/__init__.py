"""Speech to bytes for many listeners at once: here what is quick, the rest in processes."""
