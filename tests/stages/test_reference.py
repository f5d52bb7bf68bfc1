"""The numpy Qwen3 gives what transformers gave, so both know the model."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.reference import Reference
from tools.make_checkpoint import digest
from tools.make_goldens import CASES, CLEAR_GAP, LOGITS_AT, NEW_TOKENS, Golden


@pytest.mark.parametrize("name", CASES)
def test_reference_gives_the_golden(golden_folder: Callable[[str], Path], name: str) -> None:
    folder, case, golden = golden_folder(name), CASES[name], Golden.read(name)
    assert digest(folder) == golden.digest, "the checkpoint's bytes are not those of the golden"
    assert len(golden.tokens) == NEW_TOKENS
    assert golden.smallest_gap >= CLEAR_GAP
    assert len(set(golden.tokens)) > 40, "an answer that repeats itself shows little"
    reference = Reference(folder)
    assert reference.choices(case.prompt, golden.tokens) == golden.tokens
    logits = reference.logits(case.prompt + golden.tokens)[list(LOGITS_AT)]
    np.testing.assert_allclose(golden.logits, logits, rtol=0, atol=2e-4)
