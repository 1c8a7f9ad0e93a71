"""Launching a kernel from the user's own process: trace, verify, execute, arrays back."""
