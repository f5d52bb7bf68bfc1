"""transformers itself, asked again: the goldens are what it gives. Run by `make test-peers`."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tools.make_goldens import CASES, Golden, ask_transformers


@pytest.mark.peers
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", CASES)
def test_transformers_still_give_the_golden(
    golden_folder: Callable[[str], Path], name: str
) -> None:
    golden, now = Golden.read(name), ask_transformers(CASES[name], golden_folder(name))
    assert now.digest == golden.digest
    assert now.tokens == golden.tokens
    np.testing.assert_allclose(now.logits, golden.logits, rtol=0, atol=2e-4)
