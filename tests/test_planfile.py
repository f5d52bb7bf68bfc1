"""The plan file: round trip, digest, and every way to get an edit wrong."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila.derive import plan_probes, recheck
from kafila.errors import BadFile
from kafila.plan.make import Wishes
from kafila.planfile import Edges, PlanFile, parse, read
from kafila.plantext import render, summary
from kafila.probe.report import session_id
from tests.plan.fleets import LAN, PLANFILES, key, probes

PLAN = plan_probes(
    probes("anna", "bert", "cleo"),
    context=4096,
    concurrency=4,
    wishes=Wishes(strategy="bottleneck"),
)
TEXT = render(PLAN)


def test_written_plans_are_read_back() -> None:
    lone = plan_probes(probes("anna"), context=1, concurrency=1)
    for plan in (PLAN, lone, read(PLANFILES / "lan-qwen3-8b.yaml")):
        assert parse(render(plan)) == plan
        assert render(parse(render(plan))) == render(plan)


def test_digest_is_of_the_content_alone() -> None:
    words = re.sub(r" +#.*", "", TEXT) + "\n# another comment\n"
    top = [part for part in re.split(r"(?m)^(?=\w)", words) if part]
    shuffled = parse("".join(reversed(top)))
    assert shuffled.digest == PLAN.digest
    assert len(PLAN.digest) == 32
    assert parse(TEXT.replace("platform: cpu", "platform: cuda", 1)).digest != PLAN.digest


def test_digest_is_the_same_on_every_machine() -> None:
    """A change here means that members of two versions refuse each other: raise PROTOCOL."""
    assert read(PLANFILES / "lan-qwen3-8b.yaml").digest.hex() == DIGEST


DIGEST = "16805f556d80c9dfa872d08a9f5840b9c82c95412f41653fc2135526135c5ae8"


def test_how_to_punch_is_written_only_where_it_was_asked_for() -> None:
    assert "\nedges:" not in TEXT
    asked = PLAN.model_copy(update={"edges": Edges(punch="birthday")})
    text = render(asked)
    assert "\nedges: {punch: birthday} " in text
    assert parse(text) == asked
    assert asked.digest != PLAN.digest
    assert recheck(asked).plan.edges == asked.edges
    for punch, words in (
        ("ordinary", "punch must be 'birthday', not 'ordinary'"),
        ("", "punch must be 'birthday', not nothing"),
    ):
        with pytest.raises(BadFile, match=words):
            parse(text.replace("{punch: birthday}", f"{{punch: {punch}}}"))
    with pytest.raises(BadFile, match="edges must be a group of keys, not 'birthday'"):
        parse(text.replace("{punch: birthday}", "birthday"))


def test_block_ranges() -> None:
    assert [member.block_range for member in PLAN.ring] == [range(0, 4), range(4, 8), range(8, 12)]


def test_session_id_is_of_the_keys_in_any_order() -> None:
    assert session_id([key("a"), key("b")]) == session_id([key("b"), key("a")])
    assert PLAN.session.id == session_id([member.key for member in PLAN.ring])


def test_summary_names_everybody_and_the_head() -> None:
    lines = summary(PLAN).splitlines()
    assert lines[0] == "tiny on 3 members: 4096 tokens, 4 requests in 2 groups"
    assert lines[1].split()[:3] == ["anna", "blocks", "0-3"]
    assert lines[1].endswith("head")
    assert "tok/s" in lines[4]
    assert any(line.startswith("strategy load would give: ") for line in lines)
    assert any(line.startswith("predicted: one user at best about ") for line in lines)
    assert any(line.startswith("warning: the edges from anna to bert, ") for line in lines)
    assert lines[-1].startswith("head: anna opened the session")


NEXT = PLAN.ring[1].key
GROUPS = f"groups: {PLAN.groups}"
FAULTS: list[tuple[str, str, str]] = [
    # keys and types
    ("strategy: bottleneck", "strategi: bottleneck", "'strategi'; did you mean 'strategy'?"),
    ("strategy: bottleneck", "strategy: best", "strategy must be 'load', 'bottleneck', "),
    ("tier: full", "colour: red\ntier: full", "unknown key 'colour'; the keys here are format,"),
    (GROUPS, "groups: one", "groups must be a whole number, not 'one'"),
    (GROUPS, "groups: 1.5", "groups must be a whole number, not '1.5'"),
    (GROUPS, 'groups: "1"', "groups must be a whole number, not '1'"),
    (GROUPS, "groups: true", "groups must be a whole number, not 'true'"),
    (GROUPS, "groups: 5", "write at most 4"),
    ("context: 4096", "context: 9000", "tiny reaches 8192 tokens; write at most that"),
    ("platform: cpu", "platform:", "platform must be text, not nothing"),
    ("platform: cpu", 'platform: "c\\tpu"', "text on one line, without control characters"),
    ("approximate: true", "approximate: yes", "approximate must be true or false, not 'yes'"),
    ("format: 1", "format: 2", "format must be 1"),
    # units
    ("need_bytes: ", "need_bytes: 1.5 GiB #", r"bytes \(write 1610612736\), not '1.5 GiB'"),
    ("need_bytes: ", "need_gib: 2 #", "unknown key 'need_gib'; write need_bytes: 2147483648"),
    ("stage_us: ", "stage_ms: 12.5 #", "unknown key 'stage_ms'; write stage_us: 12500"),
    ("stage_us: ", "stage_us: 12.5ms #", r"microseconds \(write 12500\), not '12.5ms'"),
    ("stage_us: ", "stage_us: 12.5 #", r"microseconds \(write 12\), not '12.5'"),
    # ranges
    ("blocks: 4-7", "blocks: 5-7", "nobody before bert holds block 4; write 4-7"),
    ("blocks: 4-7", "blocks: 3-7", "anna and bert both hold block 3; write 4-7"),
    ("blocks: 4-7", "blocks: 1-7", "anna and bert both hold blocks 1-3; write 4-7"),
    ("blocks: 4-7", "blocks: 4-3", "4-3 ends before it starts; write 4-4"),
    ("blocks: 4-7", "blocks: 4", "blocks must be a first and a last block; write 4-4"),
    ("blocks: 4-7", "blocks: 4..7", "blocks must be a first and a last block, as in 0-13, not"),
    ("blocks: 8-11", "blocks: 8-10", "nobody holds block 11; write 8-11"),
    ("blocks: 8-11", "blocks: 8-12", "tiny has the blocks 0-11, and 8-12 goes past them"),
    ("blocks: 8-11", "blocks: 9-11", "nobody before cleo holds block 8; write 8-11"),
    ("blocks: 0-3", "blocks: 1-3", "nobody before anna holds block 0; write 0-3"),
    # members
    ("head: anna", "head: bert", "the head must be first in the ring, which starts with anna"),
    ("opener: anna", "opener: berta", "no member is named berta; did you mean bert?"),
    ("head: anna", "head: berta", "no member is named berta; did you mean bert?"),
    ("name: bert", "name: anna", "two members have the name anna"),
    (f"key: {NEXT}", f"key: {PLAN.ring[0].key}", "two members have the key"),
    (f"key: {NEXT}", f"key: {NEXT[:-1]}", "key must be 64 hexadecimal digits"),
    ("to: bert", "to: berta", "no member is named berta; write to: bert"),
    ("to: bert", "to: cleo", "the next in the ring after anna is bert"),
    ("path: direct", "path: magic", "path must be 'direct' or 'relayed', not 'magic'"),
    (f"  id: {PLAN.session.id}", f"  id: {key('x')}", f"write id: {PLAN.session.id}"),
]


@pytest.mark.parametrize(("old", "new", "words"), FAULTS)
def test_a_fault_names_line_and_remedy(old: str, new: str, words: str) -> None:
    before, found, after = TEXT.partition(old)
    assert found
    with pytest.raises(BadFile, match=words) as caught:
        parse(before + new + after)
    assert str(caught.value).startswith(f"plan.yaml:{before.count(chr(10)) + 1}: ")
    assert "\n" not in str(caught.value)


def test_a_missing_key_is_named_where_it_belongs() -> None:
    lines = TEXT.splitlines()
    gone = next(i for i, line in enumerate(lines) if "exchange_key" in line)
    item = max(i for i, line in enumerate(lines[:gone], start=1) if "- name" in line)
    with pytest.raises(BadFile, match=rf"plan\.yaml:{item}: the key 'exchange_key' is missing"):
        parse("\n".join(lines[:gone] + lines[gone + 1 :]))


def test_edges_of_rings() -> None:
    lone = render(plan_probes(probes("anna"), context=64, concurrency=1))
    with pytest.raises(BadFile, match="a ring of one has no edges; write edge: null"):
        parse(lone.replace("edge: null", "edge: {to: anna, path: direct, cost_us: 0}"))
    with pytest.raises(BadFile, match="the edge from anna to bert is missing"):
        parse(re.sub(r"edge: \{to: bert.*\}", "edge: null", TEXT))


def test_more_faults_are_counted() -> None:
    text = TEXT.replace(GROUPS, "groups: one").replace("tier: full", "tier: half")
    with pytest.raises(BadFile, match=r"tier must be 'full', .* not 'half' \(and 1 more\)"):
        parse(text)


@given(st.data())
def test_no_edit_of_a_line_ends_in_a_traceback(data: st.DataObject) -> None:
    lines = TEXT.splitlines()
    at = data.draw(st.integers(0, len(lines) - 1))
    lines[at] = data.draw(
        st.text(max_size=20)
        | st.just(lines[at].split(":")[0] + ": ").flatmap(
            lambda start: st.text(max_size=10).map(lambda text: start + text)
        )
    )
    outcome: object
    try:
        outcome = parse("\n".join(lines))
    except BadFile as error:
        outcome = str(error)
    assert isinstance(outcome, PlanFile) or re.match(r"plan\.yaml:\d+: ", str(outcome))


def test_plan_is_byte_identical_for_identical_input() -> None:
    from kafila.probe.report import read_probes

    first, second = (
        render(plan_probes(read_probes(LAN), context=4096, concurrency=4)) for _ in range(2)
    )
    assert first == second
