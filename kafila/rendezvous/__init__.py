"""The server through which members meet, and its client."""
