"""How much of the language is supported, and what proves it."""
