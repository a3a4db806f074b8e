"""What is computed, and on which device."""
