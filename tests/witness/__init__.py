"""Second witnesses: the same numbers by brute force, in plain Python, from the JSON itself."""
