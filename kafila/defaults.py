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

EDGE_TRIALS: Final = 4
"""Handshakes that may each turn out to be the peer's: anybody on the way can send an Initial, and
each costs this end a signature."""

HANDSHAKE_TIMEOUT: Final = 8.0
"""From a QUIC handshake's first datagram to the proof accepted: three round trips and losses."""

CLOSE_TIMEOUT: Final = 1.0
"""For the peer to hear the last words; Ctrl-C must not seem to hang."""

PATH_SIZES: Final = (1200, 1452, 8900)
"""Datagram sizes in bytes tried on a path: QUIC's minimum (a path that cannot carry it is none),
Ethernet with IPv6, and loopback or jumbo frames (below aioquic's bound of 16,383)."""

PING_AGAIN: Final = 0.02
PING_AGAIN_MOST: Final = 0.2
"""Seconds between the PINGs to an address that has not answered, doubling up to the most."""

PUNCH_SECONDS: Final = 5.0
"""How long a round of punching goes on: 25 PINGs an address, and the slowest path answers twice."""

PREPARE_TIMEOUT: Final = 0.3
"""Until punching begins without the peer's word that its NAT is open: a trip round half the earth
and a lost datagram."""

PREPARE_ALONE: Final = 5.0
"""The same before anything at all was heard of the peer, on top: it may be introduced later, and
what reaches its NAT before it has opened that may cost it the port that we were told."""

READY_AGAIN: Final = 0.05
READY_AGAIN_MOST: Final = 0.2
"""Seconds between the copies of a READY or a CALL that the peer has not answered, doubling."""

CALL_SECONDS: Final = 5.0
"""For the peer to answer a CALL: it opens a socket and asks how that is seen from outside."""

GATHER_SECONDS: Final = 1.0
"""For one server to tell a fresh socket how it is seen; without that, only its own addresses."""

OPENER_TTLS: Final = (4, 6)
"""Routers an opener may pass: more than lie before one's own NATs (three, with a carrier's five),
fewer than to the peer's NAT, which must not hear of it before its own opener went out."""

MORE_PINGS: Final = 3
"""PINGs after a path is proven here: it may not be there yet."""

PING_SIZES_ROUNDS: Final = 3
"""Rounds of PINGs of every size on a path that answers; then only QUIC's minimum is tried."""

SEEK_AGAIN_MOST: Final = 1.0
"""Seconds between PINGs to an address that did not answer, while no other way is left."""

HEARTBEAT: Final = 1.0
HEARTBEAT_IDLE: Final = 5.0
HEARTBEAT_STANDBY: Final = 15.0
"""Seconds between the PINGs on the path in use, with traffic and without, and on others that work:
all below the 25 s that are safe for the mapping of a NAT."""

ANSWER_PATIENCE: Final = 0.25
ANSWER_TRIPS: Final = 4
"""An answer is overdue after so many seconds or round trips, the longer of the two: then the relay
carries everything too, which costs little if it was only late."""

UNANSWERED_AGAIN: Final = 0.08
SUSPECT_AGAIN: Final = 0.2
"""Seconds until an unanswered PING is repeated, at least, on a path that works; and on one in use
that is silent. A single loss makes no path suspect."""

UNKNOWN_TRIP_US: Final = 100_000
"""Taken for the round trip of a path that no check has measured yet."""

NUDGE_AFTER: Final = 0.15
"""A first datagram younger than that may still be on its way when the peer turns up."""

BUSY_SECONDS: Final = 0.5
"""Between two notes that an edge carries something; shorter than HEARTBEAT."""

REFRESH_SECONDS: Final = 1.0
"""Between two requests to a relay to look where we are, while nothing comes through it."""

LOST_AFTER: Final = 2.0
"""Silence after which a path is given up: ten PINGs in a row."""

STICKY_SECONDS: Final = 0.005
STICKY_SHARE: Final = 0.1
STICKY_LEAST: Final = 0.0005
"""Another path must be shorter by so many seconds, or by this share and so many, to be taken: each
move costs a window of data sent again."""

ROUND_AGAIN: Final = (5.0, 10.0, 20.0, 60.0)
"""Seconds from the end of a vain round of punching to the next; the last from then on. Networks
change; a poisoned mapping lives for 30 s."""

RECORD_AGAIN: Final = 1.0
"""Seconds from a round's beginning to the next that a new record brings about, at least: who passes
records on may pass old ones on in turns."""

MAX_ROUND_SKIP: Final = 64
"""How far ahead of ours a round may be that the peer announces, having made some in vain."""

BIRTHDAY_SOCKETS: Final = 256
BIRTHDAY_GUESSES: Final = 1024
"""Sockets opened on one side, ports guessed on the other: one guess is right in 98 of 100 tries.
Larger numbers fill the tables of home routers."""

BIRTHDAY_RATE: Final = 400.0
"""Guesses per second: 0.2 Mbit/s; half of the tries are through after 0.5 s."""

MAX_CANDIDATES: Final = 8
"""Addresses tried of a peer; the good one must not starve among those of virtual interfaces."""

MAX_PATHS: Final = 16
"""Paths of an edge, with those discovered from the peer's own PINGs."""

DISCOVERY_SECONDS: Final = 5.0
"""Between two addresses learnt from the peer's PINGs, once MAX_PATHS were learnt at once: a peer
whose NAT was rebooted needs one, whoever plays back its PINGs from everywhere gets no more."""

MAX_DATAGRAM: Final = 9216
"""Bytes read of a datagram: above the largest of PATH_SIZES."""

SOCKET_BUFFER: Final = 4 << 20
"""Bytes asked for each way: a flight of a large message must not overflow while Python is busy
(the kernel grants what its limits allow)."""

BURST_BYTES: Final = 64 << 10
"""Bytes that may leave at once however slow the path is thought to be: a decode step of several
requests, and what one system call sends; TCP sends no less."""

FIRST_PORTION: Final = 2
"""Datagrams of a burst that leave while the rest is still made; a system call each would cost more
than it gains."""

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

# --- relay -----------------------------------------------------------------------------------

RELAY_REFRESH: Final = 10.0
"""Between two words with the relay while it answers: below the 30 s after which the shortest common
NAT mapping expires, and soon enough to notice that the relay is another process."""

RELAY_AGAIN: Final = 0.25
RELAY_AGAIN_MOST: Final = 2.0
"""Seconds until an unanswered question to the relay is repeated, doubling up to the most."""

RELAY_TRIES: Final = 4
"""Questions without an answer after which an end no longer counts as bound: about 4 s."""

RELAY_FORGET: Final = 60.0
"""After so long without a refresh the relay forgets an end: five refreshes were lost."""

RELAY_GRANT_SECONDS: Final = 600.0
"""How long a grant may be used; members ask for a new one at half of it."""

RELAY_COOKIE_SECONDS: Final = 120.0
"""A cookie proves an address for one to two of these."""

RELAY_CHALLENGES_PER_SECOND: Final = 100.0
RELAY_CHALLENGES_BURST: Final = 400.0
"""Challenges sent to one network: a lab of members that come all at once is through in a second,
and nobody's connection is filled with answers to questions that somebody asked in his name."""

RELAY_FLOWS: Final = 4096
RELAY_FLOWS_PER_ADDRESS: Final = 128
"""Flows bound at a relay, in all and with an end at one address: every client there may be has
two neighbours. About 2 KiB each."""

RELAY_MBIT_PER_S: Final = 200.0
"""Of one edge, both directions together, unless `--relay-rate` says otherwise: a prefill chunk of
2.6 MB in 0.1 s."""

RELAY_TOTAL_MBIT_PER_S: Final = 1000.0
"""Of all edges together: about what one core forwards; past it control connections would wait."""

RELAY_BURST_SECONDS: Final = 0.25
"""What may come at once, in seconds of the rate: the windows of a flow at a round trip of 80 ms
fill it three times over before anything is dropped."""

RELAY_BUDGET_GIB: Final = 100.0
"""What one session may have relayed in RELAY_BUDGET_SECONDS unless `--relay-budget` says otherwise:
a day of a ring of four with no direct edge at 20 tokens a second and hidden states of 8 KB is half
of it."""

RELAY_BUDGET_SECONDS: Final = 24 * 3600.0
"""A session's budget counts anew after a day: a ring that serves for months is one session."""

RELAY_SESSIONS: Final = 4096
"""Sessions whose relayed bytes are remembered."""

METRICS_PORT: Final = 9710
"""Where `--metrics HOST` names none."""

METRICS_REQUEST_BYTES: Final = 8 * 1024
METRICS_SECONDS: Final = 5.0
"""Of one request for metrics, and for its answer to be read: a scraper takes milliseconds."""

# --- sockets and tunnels ---------------------------------------------------------------------

RESOLVE_SECONDS: Final = 5.0
"""For the system to look a host name up: one repetition of its question, mostly."""

RESOLVED_ADDRESSES: Final = 6
"""Addresses of one host name that are tried; the first that answers is taken."""

BINDING_AGAIN: Final = (0.1, 0.3, 0.7)
"""When an unanswered STUN request is repeated, in seconds after the first."""

TUNNEL_AFTER: Final = 3.0
"""Silence over UDP after which TCP is tried: several round trips anywhere on earth. What opens
UDP is lost seldom enough that four queries in a row mean that it is blocked."""

TUNNEL_AGAIN: Final = 1.0
"""Until TCP that was refused is tried again: a relay that is back is found within a second."""

NEXT_ADDRESS: Final = 0.25
"""Until TCP is tried at the next address of a host (RFC 8305 section 5)."""

TUNNEL_IDLE: Final = 30.0
"""A tunnel that brought nothing for so long is gone; QUIC's keepalives in it come every 5 s."""

TUNNEL_BUFFER: Final = 128 << 10
"""Bytes waiting in a tunnel before datagrams are dropped: 0.05 s at 20 Mbit/s. More would only be
delay, and QUIC would not learn that it is too fast."""

TUNNELS: Final = 1024
TUNNELS_PER_ADDRESS: Final = 16
"""TCP connections a rendezvous keeps, handshakes included; about 50 KiB each. A lab behind one
firewall fits, a flood does not."""

STRANGERS_PER_SECOND: Final = 20.0
STRANGERS_BURST: Final = 40.0
"""STUN and certificate answers to one network (IPv4 /24, IPv6 /56): two machines that measure at
once fit; as a mirror it would bring a forger 10 kB/s."""

STRANGERS: Final = 4096
"""Networks whose rate is remembered."""

# --- rendezvous and session ------------------------------------------------------------------

MAX_MEMBERS: Final = 64
"""Members of one session or plan; far above any ring that makes sense, small enough to bound."""

MAX_NEIGHBOURS: Final = 2
"""Edges of one member: to the one before it in the ring and the one after."""

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

REDIAL: Final = 0.5
REDIAL_MOST: Final = 15.0
"""Seconds before a lost rendezvous is dialled again, doubling up to the most, each cut by up to
half at random: a restarted one is not met by everybody at once."""

RELAY_BIND_SECONDS: Final = 5.0
"""For both round trips of binding a flow, with losses: the rendezvous has just answered there."""

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

FREE_PORT_TRIES: Final = 8
"""Free UDP ports tried until the same number is free for TCP too."""

JOINERS_PER_SESSION: Final = 2 * MAX_MEMBERS
"""Joiners connected to one session at a time; the host drops those it refuses."""

JOINS_PER_SECOND: Final = 1.0
JOINS_BURST: Final = 64.0
"""Joins from one address, so that guessing session numbers is slow."""

REFUSALS_PER_SECOND: Final = 0.1
REFUSALS_BURST: Final = 20.0
"""Lines in a private rendezvous' log about those it refuses: 1.3 MB a day in a flood of them."""

REQUESTS_PER_SECOND: Final = 20.0
REQUESTS_BURST: Final = 400.0
"""Control messages of one connection; a host answering MAX_MEMBERS joiners at once fits."""

CLIENT_BYTES: Final = 4 << 20
"""Bytes of messages on one connection at first: a host of MAX_MEMBERS says a tenth of it. QUIC's
windows grow with what was sent, so without an end to it they would have none."""

CLIENT_BYTES_PER_HOUR: Final = 256 << 10
"""So many more with every hour, for members that stay for weeks: one of MAX_MEMBERS that renews its
grants and its record as often as it ever does says less."""

IDLE_CLIENT: Final = 10 * 60.0
"""A connection that has asked for nothing by then is closed; a host measures before it opens."""

PROOF_OF_LIFE: Final = 3.0
"""When a key connects twice, the first connection has this long to show that it still lives;
shorter than the QUIC idle time-out, so that a restarted process need not wait for that."""

UNSENT_LIMIT: Final = 1 << 20
"""Bytes queued to a client that does not read; then its connection is closed. The last member of
MAX_MEMBERS is sent the records of all others at once, half of this."""

INBOX_BYTES: Final = 16 << 20
"""Of notices that a client keeps unread; more than a host of MAX_MEMBERS can be sent in one go."""

REMEMBERED: Final = 1024
"""Numbers of past sessions a rendezvous can still say something about."""

# --- classification --------------------------------------------------------------------------

ASK_AGAIN: Final = 0.05
"""Seconds between asks to be answered from another port: a burst of loss must not take them all."""

CONTROLS: Final = 5
"""Answers from the port that was asked before silence of the other one means a filter: at 10 %
loss chance alone explains it once in 10^5 times, at 30 % once in 400."""

CONTROLS_LEAST: Final = 3
"""The same when time is up."""

FILTERING_SECONDS: Final = 2.5
"""For the controls: fifty asks, of which a path that loses two of three still answers enough."""

FILTERING_SILENCE: Final = 1.5
"""Without a single control, until mapping is measured from the second port too."""

LATE_ANSWER: Final = 0.15
"""After the last control, for the other port's answer to the same ask: paths reorder."""

MAPPING_AGAIN: Final = (0.1, 0.2)
"""Seconds until a server is asked again for the mapping, the last from then on."""

OTHER_SERVERS_SECONDS: Final = 1.0
"""For more STUN servers, when one has answered: each may be down."""

CLASSIFY_SECONDS: Final = 3.0
"""For all the servers; after so long a silence UDP is blocked."""

OPENER_TTL: Final = 5
"""Hops of a datagram that shall open this side's NATs and not reach the other side's."""

KNOCKS: Final = (0.0, 0.1, 0.2, 0.3, 0.5, 0.8)
"""When a stranger knocks, in seconds from its start, at each door."""

KNOCK_SECONDS: Final = 2.0
"""How long a stranger stands at the door, so that answers can be repeated."""

KNOCK_UNASKED: Final = 0.5
"""Until a member knocks back at a stranger whose knocks do not come through."""

VISITS: Final = 4
"""How often one member helps another: once is enough, unless it comes to nothing."""

DOORS: Final = 4
"""Addresses a stranger is asked to knock at, and those it tells; there are two sockets."""

STRANGER_SECONDS: Final = 8.0
"""For a stranger to be found, to knock and to say what it saw; it may be busy measuring."""

FRESH_SECONDS: Final = 10.0
"""How old a classification may be to go on with its sockets: mappings expire after 30 s or more."""

NETWORKS: Final = 16
"""Local networks that a report names."""

COOKIE_SECONDS: Final = 120.0
"""How long a cookie is good, at least; twice that at most."""

ASKS_PER_SECOND: Final = 40.0
ASKS_BURST: Final = 600.0
"""Asks from one address: a dozen members behind one NAT classify themselves at once."""

STUN_SERVERS: Final = 4
"""STUN servers that are asked; one on another address than the rendezvous' is enough."""

STUN_PORT: Final = 3478
"""The registered one."""

# --- serve -----------------------------------------------------------------------------------

WAITING_REQUESTS: Final = 64
"""Requests waiting for a slot; the next is told to come back (HTTP 429). At a few seconds an
answer, the last in the queue is already past most clients' patience."""

CHUNKS_A_MEMBER: Final = 2
"""Prefill chunks under way: while a member computes one, the next is on its way to it."""

UNREAD_TOKENS: Final = 64
"""Tokens a client may leave unread before its request sits out; a few seconds of an answer."""

UNREAD_SECONDS: Final = 30.0
"""How long a request may sit out before it is dropped: its slot is worth more than its reader."""

EDGE_SETTLE: Final = 5.0
"""How long edges may take to become what was planned before a member goes on and loads: as long as
a first search for a direct path. Those that are still relayed then go on searching."""

MOVE_WORDS_SECONDS: Final = 10.0
"""Between two lines about the path of one edge: a path that flaps must not fill a log."""

DOWNLOADS: Final = 4
"""Files of a share that are downloaded at once: one stream seldom fills a fast line."""

LOAD_SECONDS: Final = 60 * 60.0
"""Until all members have loaded and the ring is ready: tens of gigabytes from a slow disk fit."""

LAST_WORDS_SECONDS: Final = 2.0
"""After a connection is lost, how long to wait for its cause to come the other way round."""

FAREWELL_SECONDS: Final = 2.0
"""For the last frames and the answers to clients to leave before the process does."""

COMPUTE_STOP_SECONDS: Final = 3.0
"""For a stage call that is running at the end: a decode step ends within, a compilation may not."""

GROUP_CHANNELS: Final = 62
"""Streams for decode; with one for prefill and one for control they are an edge's 64 channels."""

FAILURE_TEXT_BYTES: Final = 2000
"""Of a member's own words about its failure."""

RATE_SECONDS: Final = 10.0
"""The window of the rates shown: short enough to follow, long enough not to flicker."""

PACE_STEPS: Final = 64
"""Decode steps that are compared with the plan together: some seconds of an answer."""

PACE_OFF: Final = 0.25
PACE_AGAIN: Final = 0.20
"""How far their median may be off before a member says so, and when it is as planned again. Good
predictions are within 10 %; what is off by a quarter divides the blocks wrongly."""

PACE_LEAST_US: Final = 250.0
"""What they must be off beside that: less is any machine's noise, and nothing a plan could mend."""

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
