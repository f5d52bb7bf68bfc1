"""The `kafila` command: verbs are imported when they are called, so start-up stays instant."""

import contextlib
import importlib
import os
import sys
import threading
from typing import NoReturn

import click

from kafila import __version__
from kafila.errors import INTERRUPTED, UNREAD, BadFile, KafilaError, UsageProblem

VERBS = {
    "probe": "Measure this machine, alone or with the other members of a session.",
    "plan": "Divide a model over the members that probed; print the plan.",
    "check": "Re-derive a plan after an edit and say whether it is still admitted.",
    "explain": "Show a plan as a picture, and say in words why it is as it is.",
    "diff": "Say what differs between two plans and what that does to the predictions.",
    "serve": "Serve a plan as one of its members.",
    "netcheck": "Say how this machine can be reached, and which members directly.",
    "rendezvous": "Run the server through which members meet.",
    "demo": "Rendezvous, three members and a chat on this machine, in one command.",
}


class _Verbs(click.Group):
    """A group whose commands live in `kafila.cli.<verb>` under the verb's own name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"kafila.cli.{cmd_name}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.command(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Example: kafila probe --model demo; kafila plan > plan.yaml; kafila serve plan.yaml
\b
Exit status: 0 done, 1 a fault of Kafila, 2 usage, 3 not admitted, 4 bad plan or report,
5 checkpoint, 6 network, 7 identity or code, 130 interrupted, 141 nobody reads the output
""",
)
@click.version_option(__version__, prog_name="kafila")
def cli() -> None:
    """Serve a large language model on the few machines you trust."""


def main() -> None:
    """Entry point: every expected failure is one line on stderr and its documented exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed for us; nor shall a socket take its place
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    if "KAFILA_PARENT" in os.environ:  # it is one of several, as in a demo
        from kafila.processes import end_with_parent

        end_with_parent()
    try:
        if any(not word or (word.startswith("--") and word.endswith("=")) for word in sys.argv[1:]):
            raise UsageProblem("an argument is empty; is a variable of the shell unset?")
        code = cli.main(standalone_mode=False)
        sys.stdout.flush()
    except (click.exceptions.Abort, KeyboardInterrupt):
        _end("interrupted", INTERRUPTED)
    except SystemExit:  # click's way to end when nobody reads the output any more
        _exit(UNREAD)
    except click.ClickException as error:
        with contextlib.suppress(OSError):
            error.show()
        _exit(error.exit_code)
    except KafilaError as error:
        _end(str(error), error.exit_code)
    except OSError as error:  # what a command meets elsewhere it says in its own words
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _end(f"the output cannot be written: {(error.strerror or '').lower()}", BadFile.exit_code)
    _exit(code if isinstance(code, int) else 0)


def _end(words: str, code: int) -> NoReturn:
    """Say why on stderr and end. Names from files and peers move no cursor and colour nothing."""
    shown = "".join(c if c.isprintable() or c == "\n" else "?" for c in words)
    with contextlib.suppress(OSError):
        click.echo(f"kafila: {shown}", err=True)
    _exit(code)


def _exit(code: int) -> NoReturn:
    """End the process; at once if a thread nobody waits for still computes.

    A compilation cannot be broken off, and Python, ending under XLA, would abort.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # what cannot be said changes nothing, nor when Python says it again
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if any(thread.daemon for thread in threading.enumerate()):
        os._exit(code)
    sys.exit(code)
