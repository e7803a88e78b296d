"""The tw command."""
