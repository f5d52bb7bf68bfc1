"""Benchmarks: each runs alone and ends with one line of JSON."""
