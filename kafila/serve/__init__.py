"""The member's runtime: frames, scheduler, ring, head."""
