"""The rows of the instruction table, one module for each engine."""
