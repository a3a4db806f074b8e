"""What is written in signs, rewritten in words or so that the rules of numbers read it well."""
