"""Reports and `probes.yaml`: round trips, and errors that say line and remedy."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from kafila.errors import BadFile
from kafila.plan import values
from kafila.plantext import nat_words
from kafila.probe import report as files
from kafila.probe.report import parse_probes, read_probes, render_probes, write_probes
from kafila.session.view import report_line
from tests.plan.fleets import key, probes, report


def test_written_reports_are_read_back(tmp_path: Path) -> None:
    session = files.Session(rendezvous="r.example.org:4710", rendezvous_key=key("r"))
    for original in (
        probes("anna", "bert", session=session, host="bert"),
        probes("anna", manifest=None),
    ):
        write_probes(original, tmp_path / "probes.yaml")
        assert read_probes(tmp_path / "probes.yaml") == original
    assert [path.name for path in tmp_path.iterdir()] == ["probes.yaml"]


def test_a_dash_is_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    write_probes(probes("anna"), "-")
    assert parse_probes(capsys.readouterr().out) == probes("anna")


def test_a_report_survives_json() -> None:
    """The way it travels to the session's host."""
    original = report("anna", rtt_us=80_000, rtt_spread_us=300)
    assert files.Report.model_validate_json(original.model_dump_json()) == original


def test_digest_is_of_the_measurements() -> None:
    assert probes("anna", "bert").digest() == probes("anna", "bert", host="bert").digest()
    assert probes("anna", "bert").digest() != probes("bert", "anna").digest()


def test_batch_measurements_start_at_one_row_and_are_sorted() -> None:
    assert list(report("a", rows_ns={4: 9, 1: 5}).rows_ns or ()) == [1, 4]
    with pytest.raises(ValidationError, match="must include one row"):
        report("a", rows_ns={2: 5})


def test_what_was_not_measured_may_be_missing() -> None:
    bare = report(
        "anna",
        bandwidth=None,
        bandwidth_spread=None,
        overhead_us=None,
        overhead_spread_us=None,
        flops=None,
        flops_spread=None,
        rows_ns=None,
        nat=None,
    )
    text = render_probes(probes(reports=(bare,)))
    assert parse_probes(text).reports == (bare,)
    assert re.search("bandwidth: null +# not measured", text)
    head, _, reports = text.partition("reports:")
    short = head + "reports:" + re.sub(r"\n +\w+: null.*", "", reports)
    assert "null" not in short.partition("reports:")[2]
    assert parse_probes(short).reports == (bare,)
    assert bare.device().nat == values.Nat()


def test_reachability_in_a_report() -> None:
    nat = files.Nat(
        mapping="endpoint-independent",
        filtering="unknown",
        public="203.0.113.7",
        networks=("192.168.1.0/24", "10.0.0.0/8"),
        ipv6=True,
    )
    full = report("anna", nat=nat, pairs_us={"bert": 300}, upload=5_000_000)
    text = render_probes(probes(reports=(full,)))
    assert parse_probes(text).reports == (full,)
    assert full.device().nat.networks == ("192.168.1.0/24", "10.0.0.0/8")
    assert full.device().pairs_us == (("bert", 300),)
    assert files.Report.model_validate_json(full.model_dump_json()) == full
    with pytest.raises(BadFile, match=r"mapping must be 'endpoint-independent', .* not 'cone'"):
        parse_probes(text.replace("mapping: endpoint-independent", "mapping: cone"))


def test_no_nat_is_said_and_changes_no_prediction() -> None:
    nat = files.Nat(
        mapping="endpoint-independent", filtering="address-dependent", public="203.0.113.7"
    )
    bare, behind = (nat.model_copy(update={"translated": each}) for each in (False, True))
    assert [each.kind for each in (nat, bare, behind)] == ["ordinary", "none", "ordinary"]
    assert nat.value() == bare.value() == behind.value()
    assert bare.model_copy(update={"mapping": "unknown"}).kind == "unknown"
    assert files.Nat(mapping="unknown", filtering="unknown", blocked=True).kind == "blocked"
    assert [nat_words(each) for each in (None, nat, bare)] == [None, "ordinary NAT", "no NAT"]
    assert "no NAT (address-dependent filtering)" in report_line(report("anna", nat=bare))
    for each in (nat, bare, behind):
        text = render_probes(probes(reports=(report("anna", nat=each),)))
        assert ("translated" in text) == (each is not nat)
        assert parse_probes(text).reports[0].nat == each


GOOD = render_probes(probes("anna", "bert"))
FAULTS = {
    "bandwidth: 30000000000": {
        "bandwidth: 30 GB/s": "bandwidth must be a whole number, not '30 GB/s'",
        "bandwidth: -3": "bandwidth must be greater than or equal to 1, not '-3'",
        "bandwidht: 3": "unknown key 'bandwidht'; did you mean 'bandwidth'?",
    },
    "room_bytes: 12884901888": {
        "room_bytes: 12 GiB": r"a whole number of bytes \(write 12884901888\), not '12 GiB'",
        "room_gib: 12": "unknown key 'room_gib'; write room_bytes: 12884901888",
        "room_GiB: 11.5": "unknown key 'room_GiB'; write room_bytes: 12348030976",
    },
    "rows_ns: {1: 90000": {
        "rows_ns: {3: 90000": "rows_ns: the measurements must include one row",
        "rows_ns: {x: 90000": "must be a whole number",
    },
    "name: anna": {"name: an na": "name must be a name of letters"},
    "name: bert": {"name: 7": "name must be text, not '7'; write \"7\" in quotes"},
    "format: 1": {"format: 2": "format must be 1, not '2'"},
    "session: null": {"session: 4": "session must be a group of keys, not '4'"},
    "host: null": {"host: cleo": "the host cleo has no report here; reports: anna, bert"},
    "measured_for: standard": {"measured_for: mine": "measured_for"},
    "  dtype: bfloat16\n": {"": "the key 'dtype' is missing here"},
}
CASES = [(old, new, words) for old, news in FAULTS.items() for new, words in news.items()]


@pytest.mark.parametrize(("old", "new", "words"), CASES)
def test_a_fault_names_line_and_remedy(old: str, new: str, words: str) -> None:
    before, found, after = GOOD.partition(old)
    assert found
    wanted_line = before.count("\n") + 1
    if "missing" in words:
        wanted_line = GOOD.partition("manifest:")[0].count("\n") + 1
    with pytest.raises(BadFile, match=words) as caught:
        parse_probes(before + new + after, "probes.yaml")
    assert str(caught.value).startswith(f"probes.yaml:{wanted_line}: ")


def test_no_reports() -> None:
    with pytest.raises(BadFile, match=r":2: reports must have at least one entry"):
        parse_probes("format: 1\nreports: []\n")
