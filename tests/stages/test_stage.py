"""A stage's results depend on the tokens before, and on nothing else that may happen to it."""

import dataclasses
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stages import kernels, random
from stages.checkpoint import Checkpoint, CheckpointError, Tensor
from stages.config import Qwen3Config
from stages.executables import Executables, Spans
from stages.functions import Functions
from stages.mesh import Split
from stages.sampling import Sampling
from stages.stage import Stage, decode_buckets, depth_buckets, prefill_buckets
from stages.weights import Loader
from tools.make_checkpoint import SIZES, write_checkpoint

Array = np.ndarray[Any, Any]

SMALL = dataclasses.replace(
    SIZES["tiny"], hidden=64, blocks=5, heads=4, kv_heads=2, head_dim=16, ffn=96, vocab=300
)
PROMPT = np.random.default_rng(5).integers(0, SMALL.vocab, 45).astype(np.int32)


@pytest.fixture(scope="module", params=["bfloat16", "float32"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    config = dataclasses.replace(SMALL, dtype=request.param)
    folder = tmp_path_factory.mktemp("stage") / request.param
    return Checkpoint.open(write_checkpoint(folder, config, shard_bytes=60_000))


@pytest.fixture(scope="module")
def whole(checkpoint: Checkpoint) -> Stage:
    """The whole model; tests leave rubbish in its slots, as earlier requests would."""
    return open_stage(checkpoint, range(5), context=64, groups=2, rows=4)


def open_stage(checkpoint: Checkpoint, blocks: range, **sizes: int) -> Stage:
    return Stage.open(checkpoint, blocks, head=blocks.start == 0, **sizes)  # type: ignore[arg-type]


def greedy(
    ring: Sequence[Stage],
    prompt: Array,
    count: int,
    *,
    group: int = 0,
    row: int = 0,
    pieces: Sequence[int] = (256,),
) -> tuple[list[int], Array]:
    """Next tokens of one request, and every hidden state that left the last stage."""
    stream: list[Array] = []
    start = 0
    for size in pieces:
        x = prompt[start : start + size]
        for stage in ring:
            x = stage.prefill(group, row, start, x)
        start += len(x)
        stream.append(x)
    tokens = []
    for position in range(start, start + count):
        positions = np.full(row + 1, -1, np.int32)
        positions[row] = position
        x = np.zeros((row + 1, ring[0].hidden), ring[0].wire_dtype)
        x[row] = stream[-1][-1]
        drawn, x = ring[0].step(group, positions, x, Sampling.greedy(row + 1))
        for stage in ring[1:]:
            x = stage.decode(group, positions, x)
        tokens.append(int(drawn[row]))
        stream.append(x[row : row + 1])
    return tokens, np.concatenate(stream)


def same(a: Array, b: Array) -> bool:
    """Bitwise."""
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("division", [(2, 3), (1, 3, 1), (1, 1, 1, 1, 1)])
def test_any_division_gives_the_same_bits(
    checkpoint: Checkpoint, whole: Stage, division: Sequence[int]
) -> None:
    stops = np.cumsum(division)
    ring = [
        open_stage(checkpoint, range(int(stop) - n, int(stop)), context=64, groups=1, rows=1)
        for n, stop in zip(division, stops, strict=True)
    ]
    tokens, stream = greedy([whole], PROMPT, 8)
    again, divided = greedy(ring, PROMPT, 8)
    assert again == tokens
    assert same(divided, stream)


def test_wire_dtype_and_shapes(checkpoint: Checkpoint, whole: Stage) -> None:
    assert whole.wire_dtype == np.dtype(checkpoint.config.dtype)
    assert (whole.hidden, whole.vocab, whole.chunk) == (64, 300, 256)
    y = whole.prefill(1, 0, 0, PROMPT[:3])
    assert y.shape == (3, 64)
    assert y.dtype == whole.wire_dtype
    tokens, y = whole.step(1, np.array([3], np.int32), y[-1:], Sampling.greedy(1))
    assert tokens.shape == (1,)
    assert tokens.dtype == np.int32
    assert y.shape == (1, 64)
    assert y.dtype == whole.wire_dtype
    logits = whole.logits(y)
    assert logits.shape == (1, 300)
    assert logits.dtype == np.float32


def test_step_takes_the_token_of_the_logits(whole: Stage) -> None:
    x = whole.prefill(0, 0, 0, PROMPT)[-1:]
    best = whole.logits(x).argmax(-1)
    tokens, y = whole.step(0, np.array([len(PROMPT)], np.int32), x, Sampling.greedy(1))
    assert tokens == best
    # The token goes in as any other would.
    assert same(whole.prefill(0, 1, 0, PROMPT)[-1:], x)
    np.testing.assert_allclose(
        whole.prefill(0, 1, len(PROMPT), tokens).astype(np.float32),
        y.astype(np.float32),
        atol=0.05,
    )


def test_slots_are_like_new_after_another_request(whole: Stage) -> None:
    tokens, stream = greedy([whole], PROMPT[:20], 10, group=1, row=2)
    greedy([whole], PROMPT[::-1], 15, group=1, row=2)
    again, same_stream = greedy([whole], PROMPT[:20], 10, group=1, row=2)
    assert again == tokens
    assert same(same_stream, stream)


def test_any_row_and_group_gives_the_same_bits(whole: Stage) -> None:
    tokens, stream = greedy([whole], PROMPT, 6)
    for group, row in [(0, 3), (1, 0), (1, 1)]:
        again, other = greedy([whole], PROMPT, 6, group=group, row=row)
        assert again == tokens
        assert same(other, stream)


def test_a_step_costs_by_the_number_of_present_rows(whole: Stage) -> None:
    x = np.ones((4, whole.hidden), whole.wire_dtype)
    nobody = np.full(4, -1, np.int32)
    assert whole.decode(0, nobody, x).shape == x.shape
    for present, bucket in [((3,), 1), ((0, 3), 2), ((0, 1, 3), 4)]:
        positions = nobody.copy()
        positions[list(present)] = 5
        ((found, rows, at),) = whole._pieces(positions)
        assert tuple(found) == present
        assert len(rows) == len(at) == bucket
        assert len(set(rows)) == bucket, "no slot twice"
        assert whole.decode(0, positions, x).shape == x.shape


def test_a_copied_slot_answers_as_the_first_would(whole: Stage) -> None:
    tokens, stream = greedy([whole], PROMPT, 6, group=0, row=1)
    whole.prefill(0, 1, 0, PROMPT)
    whole.prefill(1, 2, 0, PROMPT[::-1])
    whole.copy((0, 1), (1, 2), len(PROMPT) - 5)
    last = whole.prefill(1, 2, len(PROMPT) - 5, PROMPT[-5:])
    answer, positions = [], np.full(3, -1, np.int32)
    for position in range(len(PROMPT), len(PROMPT) + 6):
        positions[2] = position
        x = np.repeat(last[-1:], 3, axis=0)
        drawn, y = whole.step(1, positions, x, Sampling.greedy(3))
        answer.append(int(drawn[2]))
        last = y[2:]
    assert answer == tokens
    again, same_stream = greedy([whole], PROMPT, 6, group=0, row=1)
    assert again == tokens
    assert same(same_stream, stream)


@pytest.mark.parametrize("pieces", [(7, 38), (32, 13), (1, 1, 1, 42), (40, 1, 4)])
def test_chunks_give_the_tokens_of_one_chunk(whole: Stage, pieces: Sequence[int]) -> None:
    tokens, stream = greedy([whole], PROMPT, 8)
    again, other = greedy([whole], PROMPT, 8, pieces=pieces)
    assert again == tokens
    np.testing.assert_allclose(
        other.astype(np.float32), stream.astype(np.float32), rtol=0, atol=0.1
    )


def test_a_row_is_safe_from_steps_it_is_absent_from(whole: Stage) -> None:
    """Between the chunks of a prefill its group goes on decoding."""
    x = whole.prefill(0, 0, 0, PROMPT)[-1:]
    alone = whole.prefill(0, 2, 0, PROMPT[:20]), whole.prefill(0, 2, 20, PROMPT[20:])
    whole.prefill(0, 3, 0, PROMPT[:9])

    def decode(position: int) -> None:
        positions = np.array([position, -1, -1, 9], np.int32)
        hidden = np.full((4, 64), 1e3, whole.wire_dtype)
        hidden[0] = x
        whole.step(0, positions, hidden, Sampling.greedy(4))

    whole.prefill(0, 2, 0, PROMPT[::-1])  # an earlier request, longer than the first chunk
    first = whole.prefill(0, 2, 0, PROMPT[:20])
    decode(45)
    decode(46)
    second = whole.prefill(0, 2, 20, PROMPT[20:])
    assert same(first, alone[0])
    assert same(second, alone[1])


def test_an_absent_row_reads_and_writes_nothing(whole: Stage) -> None:
    """A paused or freed row must not cost its group the time its old cache takes to read."""
    hidden = np.random.default_rng(0).standard_normal((3, 64)).astype(whole.wire_dtype)
    absent = np.array([-1, -1, 0], np.int32)
    whole.prefill(0, 0, 0, PROMPT)
    before = [np.asarray(block[0].keys) for block in caches(whole)]
    filled = whole.decode(0, absent, hidden)
    for old, block in zip(before, caches(whole), strict=True):
        assert same(old, np.asarray(block[0].keys))
    for block in caches(whole):
        block[0] = jax.tree.map(jnp.zeros_like, block[0])
    assert same(whole.decode(0, absent, hidden), filled)


def caches(stage: Stage) -> list[Any]:
    """The slots of group 0: block, then row."""
    return stage._slots[0]


def test_prefill_reaches_the_end_of_the_context(whole: Stage) -> None:
    """Padding of the last chunk passes the end of the cache, and must not move what is there."""
    prompt = np.resize(PROMPT, 64)
    by_one = [whole.prefill(0, 0, i, prompt[i : i + 1]) for i in range(64)]
    whole.prefill(0, 1, 0, prompt[:60])
    last = whole.prefill(0, 1, 60, prompt[60:])
    np.testing.assert_allclose(
        last.astype(np.float32), np.concatenate(by_one[60:]).astype(np.float32), atol=0.1
    )
    # What lies before is untouched: the last position once more, by the other way.
    again = whole.prefill(0, 1, 63, prompt[63:])
    np.testing.assert_allclose(again.astype(np.float32), by_one[63].astype(np.float32), atol=0.1)


def test_a_context_below_every_bucket(checkpoint: Checkpoint, whole: Stage) -> None:
    tokens, stream = greedy([whole], PROMPT[:4], 5)
    stage = open_stage(checkpoint, range(5), context=9, groups=1, rows=1)
    again, other = greedy([stage], PROMPT[:4], 5)
    assert again == tokens
    np.testing.assert_allclose(other.astype(np.float32), stream.astype(np.float32), atol=0.05)


@pytest.mark.parametrize(("dtype", "rows"), [("bfloat16", 19), ("float32", 8)])
def test_a_row_does_not_depend_on_its_neighbours(dtype: str, rows: int) -> None:
    """At a width where XLA sums in different orders for different numbers of rows."""
    config = dataclasses.replace(
        SMALL, hidden=1024, blocks=1, head_dim=128, ffn=512, vocab=1500, dtype=dtype
    )
    blocks, head = [random.block(config)], random.head(config)
    stage = Stage(config, blocks, head, context=300, groups=1, rows=rows)
    rng = np.random.default_rng(0)
    start = rng.integers(0, 299, rows).astype(np.int32)
    for row in range(rows):
        prompt = rng.integers(0, config.vocab, 299).astype(np.int32)
        stage.prefill(0, row, 0, prompt[:200])
        stage.prefill(0, row, 200, prompt[200:])
    x = rng.standard_normal((rows, 1024)).astype(stage.wire_dtype)
    sampling = Sampling.greedy(rows)._replace(
        temperature=np.where(np.arange(rows) % 2, 0.8, 0).astype(np.float32),
        seed=np.arange(rows, dtype=np.uint32),
    )

    def run(positions: Array) -> tuple[Array, Array]:
        n = len(positions)
        return stage.step(0, positions, x[:n], jax.tree.map(itemgetter(slice(n)), sampling))

    tokens, y = run(start)
    for n in range(1, rows):
        some_tokens, some = run(start[:n])
        assert some_tokens.tolist() == tokens[:n].tolist()
        assert same(some, y[:n])
    sparse = start.copy()
    sparse[[0, 1, 4]] = -1
    _, some = run(sparse)
    assert same(some[sparse >= 0], y[sparse >= 0])


@pytest.mark.parametrize(("pure", "span"), [(False, 1), (True, 1), (False, 3)])
def test_the_caches_are_written_in_place(pure: bool, span: int) -> None:
    """XLA copies a donated cache when it schedules the write before a read."""
    config = dataclasses.replace(SMALL, head_dim=64, dtype="bfloat16")

    def memory(decode: bool, context: int) -> Any:
        code = Executables(
            config, Split.of(config), spans=Spans(span, 1), head=False, context=context
        )
        with kernels.using(None if pure else kernels.best()):
            executable = code.decode(2, context) if decode else code.prefill(32, context)
        slots = 2 * span if decode else 1
        found = executable.memory_analysis()
        assert found.alias_size_in_bytes == 2 * slots * 2 * context * 64 * 2
        return found.temp_size_in_bytes

    for decode in (True, False):
        # Attention goes piece by piece: what it needs does not grow with the context.
        assert memory(decode, 16384) == memory(decode, 1024) < 16384 * 64 * 2


def test_loads_its_own_shards_only(checkpoint: Checkpoint, whole: Stage, tmp_path: Path) -> None:
    own = Checkpoint.open(checkpoint.path, range(2, 4), head=False)
    folder = tmp_path / "part"
    folder.mkdir()
    files = {tensor.file for tensor in own.tensors.values()}
    for file in (checkpoint.path / "config.json", checkpoint.path / "model.safetensors.index.json"):
        (folder / file.name).write_bytes(file.read_bytes())
    for file in files:
        (folder / file.name).write_bytes(file.read_bytes())
    assert len(files) < len(list(checkpoint.path.glob("*.safetensors")))
    with pytest.raises(CheckpointError):
        Checkpoint.open(folder)
    told: list[tuple[str, int, int]] = []
    stage = Stage.open(
        Checkpoint.open(folder, range(2, 4), head=False),
        range(2, 4),
        head=False,
        context=64,
        groups=1,
        rows=1,
        on_progress=lambda *progress: told.append(progress),
    )
    size = sum(tensor.stop - tensor.start for tensor in own.tensors.values())
    assert [t for t in told if t[0] == "loading"][-1] == ("loading", size, size)
    compiling = [t for t in told if t[0] == "compiling"]
    assert compiling[0][1] == 0
    assert compiling[-1][1] == compiling[-1][2] == 4
    x = np.ones((3, 64), stage.wire_dtype)
    reference = open_stage(checkpoint, range(2, 4), context=64, groups=1, rows=1)
    assert same(stage.prefill(0, 0, 0, x), reference.prefill(0, 0, 0, x))


@pytest.mark.parametrize("start", [64, 72, 65])
def test_tensors_are_loaded_at_any_alignment(tmp_path: Path, start: int) -> None:
    values = np.random.default_rng(0).standard_normal((6, 50)).astype("bfloat16")
    file = tmp_path / "file"
    file.write_bytes(bytes(start) + values.tobytes() + b"more")
    sizes: list[int] = []
    loader = Loader(Split.of(SMALL), sizes.append)
    loaded = loader.load(Tensor(file, "BF16", (6, 50), start, start + 600))
    assert same(np.asarray(loaded), values)
    assert sizes == [600]
    with pytest.raises(CheckpointError, match="shorter"):
        loader.load(Tensor(file, "BF16", (6, 50), start + 5, start + 605))


@pytest.mark.parametrize("left", [None, 0, 500])
def test_a_file_that_shrinks_after_its_header_was_read(tmp_path: Path, left: int | None) -> None:
    file = tmp_path / "file"
    if left is not None:
        file.write_bytes(bytes(left))
    with pytest.raises(CheckpointError, match=str(file)):
        Loader(Split.of(SMALL), lambda size: None).load(Tensor(file, "F32", (150,), 0, 600))


def test_refuses_positions_outside_the_context(whole: Stage) -> None:
    with pytest.raises(ValueError, match="context of 64"):
        whole.prefill(0, 0, 60, PROMPT[:5])
    with pytest.raises(ValueError, match="context 64"):
        whole.decode(0, np.array([64], np.int32), np.zeros((1, 64), whole.wire_dtype))
    with pytest.raises(ValueError, match="4 rows"):
        whole.decode(0, np.zeros(5, np.int32), np.zeros((5, 64), whole.wire_dtype))


def test_buckets() -> None:
    assert decode_buckets(1) == [1]
    assert decode_buckets(2) == [1, 2]
    assert decode_buckets(6) == [1, 2, 4, 6]
    assert decode_buckets(16) == [1, 2, 4, 8, 16]
    assert decode_buckets(40) == [1, 2, 4, 8, 16], "more rows are taken in pieces"
    assert prefill_buckets(9) == [9]
    assert prefill_buckets(40) == [32, 40]
    assert prefill_buckets(4096) == [32, 256]
    assert depth_buckets(40960) == [40960], "kernels and loops read what is valid"


def test_buckets_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert decode_buckets(40) == [1, 2, 4, 8, 16, 32, 40]
    assert depth_buckets(300) == [300]
    assert depth_buckets(2048) == [512, 2048]
    assert depth_buckets(4096) == [1024, 4096]
    assert depth_buckets(4097) == [1025, 4097]


def test_random_weights_have_the_shapes_of_the_config() -> None:
    config: Qwen3Config = dataclasses.replace(SMALL, tied=False)
    names = Functions(config, head=True).head
    assert names is not None
    assert [a.shape for a in random.head(config)] == [config.head_shapes()[n] for n in names.names]
