"""The planner: pure functions on plain values. No I/O, no clock, no asyncio, no JAX."""
