"""The demo model's own byte-level BPE: trained on the grammar, one token a digit as in Qwen's."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from .chat import CHAT_TEMPLATE, END_OF_TEXT, IM_END, IM_START, conversations

SPECIAL = (END_OF_TEXT, IM_START, IM_END)
END_OF_TEXT_ID, IM_START_ID, IM_END_ID = range(3)

# Words with the space before them, single digits, runs of signs, white space.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _texts(seed: int, count: int) -> Iterable[str]:
    # Only what people and model say: the marks between the turns are special tokens.
    for conversation in islice(conversations(seed), count):
        for turn in conversation:
            yield turn.content
            yield turn.role


def build(vocab_size: int, seed: int, count: int = 30_000) -> Tokenizer:
    """A tokenizer of exactly `vocab_size` entries, from `count` conversations."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(seed, count), trainer)
    if tokenizer.get_vocab_size() != vocab_size:
        raise ValueError(f"the texts give only {tokenizer.get_vocab_size()} of {vocab_size} tokens")
    return tokenizer


def tokenizer_config(max_length: int) -> dict[str, object]:
    """The `tokenizer_config.json` beside `tokenizer.json`; it carries the chat template."""
    return {
        "add_bos_token": False,
        "bos_token": None,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": IM_END,
        "model_max_length": max_length,
        "pad_token": END_OF_TEXT,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": None,
    }
