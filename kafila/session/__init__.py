"""How host and members meet: code, SPAKE2, reports, and the edges of a plan."""
