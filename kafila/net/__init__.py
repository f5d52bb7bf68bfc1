"""One UDP socket and all that shares it: identity, QUIC, paths, edges."""
