"""Every timeout, port, size and limit of Kafila, each with its reason.

Sections follow the rooms; a number used in one place only still lives here.
"""

from typing import Final

# --- cli and files ---------------------------------------------------------------------------

HOME: Final = "~/.kafila"
"""Where a machine's keys live; `--home` gives each of several members on one machine its own."""

CACHE: Final = "~/.cache/kafila"
"""What can be made again: compiled executables, the probe's lock."""

API_PORT: Final = 8210
"""Where the head answers; not a port that other model servers commonly take."""

RENDEZVOUS_PORT: Final = 4710
"""Unassigned in the service registry and outside the ephemeral ranges."""

# --- probe -----------------------------------------------------------------------------------

RESERVE_BYTES: Final = 1 << 30
RESERVE_SHARE: Final = 0.05
"""RAM left to the system and its other programs: the larger of the two. Taken from what is
available now, so programs already running are not counted twice."""

DEVICE_RESERVE_SHARE: Final = 0.08
"""Of a device's own memory: its context, its libraries' workspaces, fragmentation."""

PROBE_TURN_SECONDS: Final = 300.0
"""Until the other probes on this machine are through; each measures for seconds."""

# --- plan ------------------------------------------------------------------------------------

CONTEXT: Final = 4096
"""Tokens a request may span, prompt and answer together, unless `--context` says otherwise."""

CONCURRENCY: Final = 4
"""Requests served at once unless `--concurrency` says otherwise."""

MAX_CONCURRENCY: Final = 256
"""Far more requests than one ring of a few machines serves well; a step is compiled for its rows,
and planning tries every number of groups."""

HEAD_MARGIN: Final = 0.05
"""A head must beat the anchor by this share to move: more than overhead noise can feign (paper)."""

EXACT_RING: Final = 16
"""Members up to which the ring's order is exact: half a second; two more would take four times."""

PREFILL_CHUNK: Final = 256
"""Tokens of a prompt that go round the ring at once, as `stages` compiles them."""

PROMPT_TOKENS: Final = 1000
"""The prompt for which plans predict the time to the first token: a page or two of text."""

MAX_FILE_BYTES: Final = 1 << 20
"""A plan or report file is a few kilobytes; past this it is another file."""

# --- net -------------------------------------------------------------------------------------

IDLE_TIMEOUT: Final = 15.0
"""Silence after which a peer is gone. Three keepalives fall into it, so that two may be lost, and
they come every 5 s: well below the 30 s after which the shortest common NAT mapping expires."""

DIAL_TIMEOUT: Final = 10.0
"""For a connection to a rendezvous: several retransmissions on a slow path."""

EDGE_TIMEOUT: Final = 30.0
"""For an edge between two members that were introduced; their clocks and starts may differ."""

HANDSHAKE_TIMEOUT: Final = 8.0
"""From a QUIC handshake's first datagram to the proof accepted: three round trips and losses."""

CLOSE_TIMEOUT: Final = 1.0
"""For the peer to hear the last words; Ctrl-C must not seem to hang."""

PATH_SIZES: Final = (1200, 1452, 8900)
"""Datagram sizes in bytes tried on a path: QUIC's minimum (a path that cannot carry it is none),
Ethernet with IPv6, and loopback or jumbo frames (below aioquic's bound of 16,383)."""

PATH_PATIENCE: Final = 0.025
"""After the first PONG, for PONGs to larger PINGs of the same round or from better paths."""

PING_AGAIN: Final = 0.05
PING_AGAIN_MOST: Final = 0.4
"""Seconds between the rounds of PINGs on a path that has not answered, doubling up to the most."""

PING_FULL_ROUNDS: Final = 3
"""Rounds with PINGs of every size; an address silent for so long gets only the smallest."""

MAX_CANDIDATES: Final = 8
"""Addresses tried of a peer; the good one must not starve among those of virtual interfaces."""

MAX_PATHS: Final = 16
"""Paths of an edge, with those discovered from the peer's own PINGs."""

MAX_DATAGRAM: Final = 9216
"""Bytes read of a datagram: above the largest of PATH_SIZES."""

SOCKET_BUFFER: Final = 4 << 20
"""Bytes asked for each way: a flight of a large message must not overflow while Python is busy
(the kernel grants what its limits allow)."""

DRAIN: Final = 64
"""Datagrams taken from the socket before anything is sent: long bursts share one answer, and
timers still run."""

MAX_CERTIFICATE: Final = 480
"""Bytes of a certificate; an Ed25519 one of ours has 240."""

CERTIFICATE_QUERY_SIZE: Final = 512
"""A query is padded to this, so that its answer is never larger."""

QUERY_AGAIN: Final = 0.25
"""Seconds until an unanswered query is repeated, doubling."""

STUN_TIMEOUT: Final = 1.0
"""Above any round trip worth measuring; a sample that takes longer counts as lost."""

MAX_HALF_OPEN: Final = 64
"""QUIC handshakes in progress with strangers (libp2p's bound); each costs up to 300 KiB. From half
of it on, newcomers first prove that they receive at their address."""

HALF_OPEN_PER_ADDRESS: Final = 16
"""Of these, from one address that was proven; more come back a moment later."""

MAX_CHANNELS: Final = 64
"""Channels of an edge each way; QUIC lets the peer open 128 streams. A connection to a rendezvous
has one."""

MAX_MESSAGE: Final = 32 << 20
"""Bytes of a message on an edge; a prefill chunk of 256 x 5120 bf16 has 2.6 MB."""

EDGE_WINDOW: Final = 16 << 20
CONTROL_WINDOW: Final = 128 << 10
"""Bytes a peer may send ahead at first (QUIC flow control, grows with use): several prefill chunks
on an edge; two messages where the peer is anybody. Twice this may lie beyond a gap, for as long as
the lost datagram is on its way again."""

KEPT_MESSAGE_BYTES: Final = 256
"""What a message kept for its reader costs beside its own bytes."""

MAX_REASON: Final = 200
"""Bytes of the reason a peer gives for closing: a sentence."""

# --- rendezvous and session ------------------------------------------------------------------

MAX_MEMBERS: Final = 64
"""Members of one session or plan; far above any ring that makes sense, small enough to bound."""

MESSAGE_LIMIT: Final = 64 * 1024
"""Bytes of one control message; an introduction names up to MAX_MEMBERS keys of 64 digits."""

MAIL_LIMIT: Final = 48 * 1024
"""Characters of one mail between host and joiner; a report is about 2 KiB, sealed 3 KiB."""

RECORD_LIMIT: Final = 8 * 1024
"""Characters of a member's signed record; a certificate is 0.5 KiB, eight candidates as much."""

TEXT_LIMIT: Final = 300
"""Characters of words for a person inside a message: two lines of a terminal."""

CODE_SECONDS: Final = 15 * 60.0
"""How long a code can be joined: long enough to read it out, too short to guess at."""

COLLECT_SECONDS: Final = 15 * 60.0
"""How long a session lives after its code expired, for members that are still measuring."""

GUESSES: Final = 10
"""Failed confirmations that void a code, or twice its members where that is more: with 33 bits
in the words a guesser then has one chance in hundreds of millions, and typos are forgiven."""

PAKE_GRID: Final = 0.25
"""A host answers a key exchange at multiples of this many seconds after it came, because the
SPAKE2 library's arithmetic is not constant-time and its duration would depend on the words."""

STEP_SECONDS: Final = 20.0
"""For one answer of the other side (which may be computing a key exchange for somebody else)."""

MEET_SECONDS: Final = 10 * 60.0
"""How long a serving member waits for the others: people start them by hand, one by one."""

OTHER_PLAN_SECONDS: Final = 20.0
"""How long a member that is there with another plan may take to come with the right one. A killed
process is there until IDLE_TIMEOUT, and the one started in its place a PROOF_OF_LIFE later."""

CLAIM_US: Final = 24 * 3600 * 10**6
"""A day: nothing that a member measures takes longer. These three are what a host believes of
another's report, tighter than what a file may say: no owner stands beside it to explain."""

CLAIM_BYTES: Final = 1 << 50
"""A PiB, of memory and what is kept in it: many times the largest machine's."""

CLAIM_RATE: Final = 10**15
"""A PB/s, of memory or a network: a hundred times the fastest device's."""

RTT_SAMPLES: Final = 15
"""Round trips in a window; the median of 15 ignores several spikes and takes under a second."""

CLIENTS: Final = 4096
"""Connections a rendezvous keeps; about 100 KiB each."""

CLIENTS_PER_ADDRESS: Final = 64
"""Connections from one address: a lab behind one NAT fits, a flood does not."""

SESSIONS_PER_ADDRESS: Final = 8
"""Sessions opened from one address at a time."""

JOINERS_PER_SESSION: Final = 2 * MAX_MEMBERS
"""Joiners connected to one session at a time; the host drops those it refuses."""

JOINS_PER_SECOND: Final = 1.0
JOINS_BURST: Final = 64.0
"""Joins from one address, so that guessing session numbers is slow."""

REQUESTS_PER_SECOND: Final = 20.0
REQUESTS_BURST: Final = 400.0
"""Control messages of one connection; a host answering MAX_MEMBERS joiners at once fits."""

CLIENT_BYTES: Final = 4 << 20
"""Bytes of messages on one connection, in all: a host of MAX_MEMBERS says a tenth of it. QUIC's
windows grow with what was sent, so without an end to it they would have none."""

IDLE_CLIENT: Final = 10 * 60.0
"""A connection that has asked for nothing by then is closed; a host measures before it opens."""

PROOF_OF_LIFE: Final = 3.0
"""When a key connects twice, the first connection has this long to show that it still lives;
shorter than the QUIC idle time-out, so that a restarted process need not wait for that."""

UNSENT_LIMIT: Final = 1 << 20
"""Bytes queued to a client that does not read; then its connection is closed. The last member of
MAX_MEMBERS is sent the records of all others at once, half of this."""

INBOX: Final = 4096
"""Notices a client keeps unread; more than a host of MAX_MEMBERS can be sent in one go."""

REMEMBERED: Final = 1024
"""Numbers of past sessions a rendezvous can still say something about."""

# --- serve -----------------------------------------------------------------------------------

WAITING_REQUESTS: Final = 64
"""Requests waiting for a slot; the next is told to come back (HTTP 429). At a few seconds an
answer, the last in the queue is already past most clients' patience."""

UNREAD_TOKENS: Final = 64
"""Tokens a client may leave unread before its request sits out; a few seconds of an answer."""

UNREAD_SECONDS: Final = 30.0
"""How long a request may sit out before it is dropped: its slot is worth more than its reader."""

LOAD_SECONDS: Final = 60 * 60.0
"""Until all members have loaded and the ring is ready: tens of gigabytes from a slow disk fit."""

LAST_WORDS_SECONDS: Final = 2.0
"""After a connection is lost, how long to wait for its cause to come the other way round."""

FAREWELL_SECONDS: Final = 2.0
"""For the last frames and the answers to clients to leave before the process does."""

COMPUTE_STOP_SECONDS: Final = 3.0
"""For a stage call that is running at the end: a decode step ends within, a compilation may not."""

GROUP_CHANNELS: Final = 31
"""Streams for decode, and as many for prefill: with control they are an edge's 64 channels."""

FAILURE_TEXT_BYTES: Final = 2000
"""Of a member's own words about its failure."""

RATE_SECONDS: Final = 10.0
"""The window of the rates shown: short enough to follow, long enough not to flicker."""

STATUS_SECONDS: Final = 1.0
"""Between two updates of the state on a terminal."""

STATUS_LINE_SECONDS: Final = 60.0
"""Between two lines of state in a log, and only while there is work."""

# --- api -------------------------------------------------------------------------------------

BODY_BYTES: Final = 16 * 1024 * 1024
"""Of one request, whatever the context: a prompt of a million tokens as JSON."""

BODY_TOKEN_BYTES: Final = 64
BODY_EXTRA_BYTES: Final = 1 << 20
"""Of one request: so much a token of the plan's context, and all the rest. A token takes 4 bytes
of text, 9 as a number and 12 where a client escapes every letter; the rest is a few hundred."""

BODY_SECONDS: Final = 60.0
"""From a request's head to the end of its body, which takes milliseconds on the loopback device
and a minute for the largest through a slow tunnel; then the connection is given up."""

MESSAGES: Final = 8192
"""Turns of one conversation: more than a context of 100,000 tokens holds."""

RETRY_AFTER_SECONDS: Final = 2
"""What a refused client is told to wait; about the time in which a slot comes free."""

KEEPALIVE_SECONDS: Final = 5.0
"""Between comments in a silent stream: clients and proxies give up after 30 s or more."""

STOP_STRINGS: Final = 4
"""Of one request, as OpenAI allows."""

STOP_STRING_CHARACTERS: Final = 256
"""Of one stop string; text is held back for as long as it may still become one."""

# --- demo ------------------------------------------------------------------------------------

DEMO_PROBE_SECONDS: Final = 180.0
"""Three members measure one after the other; about 20 s on two cores."""

DEMO_READY_SECONDS: Final = 180.0
"""Three processes import JAX and compile at once; about 15 s on two cores."""

DEMO_ANSWER_SECONDS: Final = 60.0
"""Between two pieces of an answer; hundreds of times what a token takes."""

DEMO_LINE_SECONDS: Final = 60.0
"""Until a process says its first line; the host measures before it opens its session."""

DEMO_STOP_SECONDS: Final = 8.0
"""A member says goodbye within a second; after this it is killed."""
