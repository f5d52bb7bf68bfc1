"""What a probe shows on stderr while it works, and a report in one line."""

import sys
from types import TracebackType

import click

from kafila.address import Address, format_address
from kafila.probe.report import Nat, Report
from kafila.session.events import CodeReady, Event


class ProbeView:
    """Progress and events as they come: a bar on a terminal, nothing but events elsewhere.

    The session's code is what a script wants, so it goes to stdout, unless the report does.
    """

    def __init__(self, *, code_to_stderr: bool, rendezvous: Address | None) -> None:
        self._code_to_stderr = code_to_stderr
        self._rendezvous = rendezvous
        self._shown = 0

    def __enter__(self) -> "ProbeView":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._clear()

    def progress(self, what: str, done: int, total: int) -> None:
        """`done` of `total` measurements are done; `what` is being measured."""
        if not sys.stderr.isatty():
            return
        width = 24
        filled = width * done // max(total, 1)
        line = f"[{'#' * filled}{'.' * (width - filled)}] {what}"
        click.echo("\r" + line.ljust(self._shown), nl=False, err=True)
        self._shown = len(line)

    def event(self, event: Event) -> None:
        """Something happened in the session."""
        self._clear()
        if isinstance(event, CodeReady):
            click.echo(event.code, err=self._code_to_stderr)
        click.echo(str(event), err=True)
        if isinstance(event, CodeReady) and self._rendezvous:
            at = format_address(self._rendezvous)
            click.echo(f"the others run: kafila probe --join {event.code}@{at}", err=True)
            if self._rendezvous[0].startswith(("127.", "localhost")):
                click.echo("members on other machines cannot reach that address", err=True)

    def _clear(self) -> None:
        if self._shown:
            click.echo("\r" + " " * self._shown + "\r", nl=False, err=True)
            self._shown = 0


def report_line(report: Report) -> str:
    """What was measured, for a person: name, device, rates with their spread, room."""
    parts = [
        f"{report.name}: {report.hardware} ({report.platform})",
        "no bandwidth"
        if report.bandwidth is None
        else f"{report.bandwidth / 1e9:.1f} GB/s (±{(report.bandwidth_spread or 0) / 2e9:.1f})",
        "no overhead"
        if report.overhead_us is None
        else f"overhead {report.overhead_us} us (±{(report.overhead_spread_us or 0) / 2:.0f})",
        "no arithmetic rate" if report.flops is None else f"{report.flops / 1e12:.2f} TFLOP/s",
        f"room {report.room_bytes / 2**30:.1f} GiB",
    ]
    if report.rtt_us is not None:
        parts.append(f"{report.rtt_us / 1e3:.1f} ms to the rendezvous")
    if report.nat is not None:
        parts.append(nat_line(report.nat))
    return ", ".join(parts)


def nat_line(nat: Nat) -> str:
    """A NAT's class and its two behaviours."""
    if nat.blocked:
        return "UDP blocked"
    filtering = f"{nat.filtering} filtering"
    if nat.kind == "none":
        return f"no NAT ({filtering})"
    kind = nat.kind if nat.translated is None else f"{nat.kind} NAT"  # or there may be none
    return f"{kind} ({nat.mapping} mapping, {filtering})"
