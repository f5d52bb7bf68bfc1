"""Tests in the NAT lab: real namespaces, NATs and processes. They need root."""
