"""What clients see: the OpenAI-compatible HTTP API."""
