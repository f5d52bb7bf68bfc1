"""Kafila: one language model on the few machines you trust."""

__version__ = "0.1.0"

PROTOCOL = 2
"""Version of everything members say to each other; unequal versions refuse each other."""
