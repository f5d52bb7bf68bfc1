"""Plans for people to read: a plan as a picture and as reasons, and two plans compared."""
