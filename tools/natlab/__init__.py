"""A laboratory of real kernel NATs: see docs/nat.md."""
