"""Train the demo model that `make demo` serves, and write it as a Hugging Face checkpoint.

    python -m tools.train_demo_model --out kafila/demo_model

The model is a Qwen3 of under five million weights. Its texts come from the grammar in
`tools/demo_model`, so nothing is copied from anywhere; the same seed gives the same texts,
tokenizer and weights on the same machine. It takes some twenty minutes on two cores. A model that
answers badly is not written.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

if __name__ == "__main__" and not __package__:  # started by its path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.demo_model import evaluate, export, tokenizer, training
from tools.demo_model.card import card
from tools.demo_model.model import ModelConfig, Params

LARGEST = 10_000_000
STEPS = 4400


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the demo model and write its checkpoint.")
    parser.add_argument(
        "--steps", type=int, default=STEPS, help=f"training steps (default {STEPS})"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of texts and weights (default 0)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("kafila/demo_model"),
        help="the checkpoint's directory (default kafila/demo_model)",
    )
    arguments = parser.parse_args()
    if arguments.steps < 1:
        parser.error(f"--steps must be at least 1, not {arguments.steps}")
    if arguments.seed < 0:
        parser.error(f"--seed must not be negative, not {arguments.seed}")
    if arguments.out.exists() and not arguments.out.is_dir():
        parser.error(f"--out {arguments.out} is there and is not a directory")
    return arguments


def _put(staging: Path, out: Path) -> None:
    """Move the finished files into `out`, the weights last; other files there stay."""
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(staging.iterdir(), key=lambda path: path.suffix == ".safetensors"):
        path.replace(out / path.name)
    staging.rmdir()


def _judge(staging: Path, config: ModelConfig, seed: int) -> tuple[evaluate.Score, evaluate.Score]:
    """Answer from the written checkpoint, print the showcase, and count what is right."""
    params, words = export.read(staging)
    given = evaluate.answers(config, params, words, evaluate.SHOWCASE, limit=200)
    for question, answer in zip(evaluate.SHOWCASE, given, strict=True):
        print(f"\n> {question}\n{answer}")
    scores = (
        evaluate.score_sums(config, params, words, seed),
        evaluate.score_facts(config, params, words, seed),
    )
    for name, score in zip(("sums", "facts"), scores, strict=True):
        print(f"\nheld-out {name}: {score.right} of {score.asked} exactly right")
        for line in score.wrong[:8]:
            print(f"  wrong: {line}")
    return scores


def main() -> int:
    """Train, judge, write; 1 when the model is too poor or too big to be written."""
    arguments = _arguments()
    training.use_cpu()
    out: Path = arguments.out
    recipe = training.Recipe(steps=arguments.steps, seed=arguments.seed)
    config = ModelConfig()
    staging = out.with_name(f".{out.name}.part")
    try:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
    except OSError as error:
        print(f"cannot write to {staging}: {error.strerror}", file=sys.stderr)
        return 1

    started, worked = time.monotonic(), time.process_time()
    words = tokenizer.build(config.vocab_size, arguments.seed)

    def watch(params: Params) -> str:
        score = evaluate.score_sums(config, params, words, arguments.seed, count=64)
        return f"{score.right} of {score.asked} held-out sums right"

    params = training.train(config, recipe, words, watch)
    minutes = (time.monotonic() - started) / 60
    core_minutes = (time.process_time() - worked) / 60
    export.write(staging, config, params, words)
    of_sums, of_facts = _judge(staging, config, arguments.seed)
    text = card(config, recipe, core_minutes, of_sums, of_facts)
    (staging / "README.md").write_text(text, encoding="utf-8")
    size = export.size(staging)
    print(
        f"\ntrained in {minutes:.1f} minutes ({core_minutes:.1f} core-minutes); {size / 1e6:.2f} MB"
    )
    poor = of_sums.share < evaluate.LEAST_SUMS or of_facts.share < evaluate.LEAST_FACTS
    if poor or size > LARGEST:
        why = (
            f"it answers too few held-out questions (needed: {evaluate.LEAST_SUMS:.0%} of the "
            f"sums, {evaluate.LEAST_FACTS:.0%} of the facts); train it for more steps"
            if poor
            else f"it is larger than {LARGEST / 1e6:.0f} MB"
        )
        shutil.rmtree(staging)
        print(f"not written: {why}", file=sys.stderr)
        return 1
    _put(staging, out)
    print(f"written to {out}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
