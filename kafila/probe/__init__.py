"""Measure this machine and write what was measured."""
