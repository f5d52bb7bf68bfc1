"""The errors users see: one sentence each (what happened, where, what to do) and an exit code.

Exit codes: 0 done, 1 a fault of ours, 2 usage, 3 not admitted, 4 bad plan or report, 5 checkpoint,
6 network, 7 identity or code, 130 interrupted, 141 nobody reads the output.
"""

from typing import ClassVar


class KafilaError(Exception):
    """Base of all errors that are shown to a user as one message without a traceback."""

    exit_code: ClassVar[int] = 1


class UsageProblem(KafilaError):
    """The command's words are wrong."""

    exit_code = 2


class NotAdmitted(KafilaError):
    """The model does not fit the members at the declared context and concurrency."""

    exit_code = 3


class BadFile(KafilaError):
    """A plan or report file cannot be used; the message names file and line where there is one."""

    exit_code = 4


class CheckpointProblem(KafilaError):
    """The model's files are missing, truncated or of another kind."""

    exit_code = 5


class NetworkProblem(KafilaError):
    """A socket, a path or a peer failed."""

    exit_code = 6


class IdentityProblem(KafilaError):
    """A key, a code, a plan digest or a protocol version is not the expected one."""

    exit_code = 7


INTERRUPTED = 130
UNREAD = 141
