"""Stages of Qwen3: any contiguous range of a checkpoint's blocks as a compiled, callable piece.

Usable alone: knows files, tensors and devices, and nothing of members, plans or networks.
Importing `stages`, `stages.config` and `stages.checkpoint` imports no JAX.
"""
