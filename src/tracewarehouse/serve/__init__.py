"""Doors to a warehouse for other programs: SQL of users in child processes, and `tw mcp` for agents."""
