"""Mutated and random bytes for everything that reads the network: `python -m tools.fuzz`."""
