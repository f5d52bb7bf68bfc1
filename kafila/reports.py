"""The reports of several files as one set, and the set without some of its members."""

from collections.abc import Sequence

from kafila.address import Address, format_address
from kafila.defaults import MAX_MEMBERS
from kafila.errors import BadFile, UsageProblem
from kafila.probe.report import Probes, Session
from kafila.words import listed


def merge(files: Sequence[tuple[str, Probes]]) -> Probes:
    """Report files (each with what to call it) as one: reports in order, the first file's host.

    Files may leave model and session out; where two name different ones, BadFile.
    """
    first = files[0][1]
    manifest, session = first.manifest, first.session
    for name, probes in files[1:]:
        if manifest and probes.manifest and probes.manifest.digest != manifest.digest:
            raise BadFile(
                f"{name}: made for {probes.manifest.name}, but {files[0][0]} for {manifest.name}; "
                "probe both for one model"
            )
        if session and probes.session and probes.session != session:
            raise BadFile(f"{name}: names another rendezvous than the files before it")
        manifest, session = manifest or probes.manifest, session or probes.session
    reports = tuple(report for _, probes in files for report in probes.reports)
    if len(reports) > MAX_MEMBERS:
        raise BadFile(f"{len(reports)} reports; a ring has at most {MAX_MEMBERS} members")
    host = first.host or first.reports[0].name
    return Probes(manifest=manifest, session=session, host=host, reports=reports)


def meeting_at(probes: Probes, rendezvous: Address) -> Probes:
    """The reports with another rendezvous to meet at when serving."""
    session = Session(rendezvous=format_address(rendezvous), rendezvous_key=None)
    return probes.model_copy(update={"session": session})


def without(probes: Probes, names: Sequence[str]) -> Probes:
    """The reports without those of some members; UsageProblem where one is not there.

    Where the host goes, the first of the others opens the session.
    """
    there = [report.name for report in probes.reports]
    for name in names:
        if name not in there:
            raise UsageProblem(f"--without {name}: the members are {listed(there)}")
    left = tuple(report for report in probes.reports if report.name not in names)
    if not left:
        raise UsageProblem("--without: nobody is left")
    host = left[0].name if probes.host in names else probes.host
    return probes.model_copy(update={"reports": left, "host": host})
