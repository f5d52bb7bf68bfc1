"""Every timeout, port, size and limit of Kafila, each with its reason.

Sections follow the rooms; a number used in one place only still lives here.
"""

from typing import Final

# --- cli and files ---------------------------------------------------------------------------

HOME: Final = "~/.kafila"
"""Where a machine's keys live; `--home` gives each of several members on one machine its own."""

API_PORT: Final = 8210
"""Where the head answers; not a port that other model servers commonly take."""

RENDEZVOUS_PORT: Final = 4710
"""Unassigned in the service registry and outside the ephemeral ranges."""

# --- plan ------------------------------------------------------------------------------------

CONTEXT: Final = 4096
"""Tokens a request may span, prompt and answer together, unless `--context` says otherwise."""

CONCURRENCY: Final = 4
"""Requests served at once unless `--concurrency` says otherwise."""

# --- net -------------------------------------------------------------------------------------

# --- rendezvous and session ------------------------------------------------------------------

# --- serve -----------------------------------------------------------------------------------

# --- api -------------------------------------------------------------------------------------
