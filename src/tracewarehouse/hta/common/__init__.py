"""What notebooks take from `hta.common`."""
