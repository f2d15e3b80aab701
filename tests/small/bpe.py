"""A byte-level BPE tokenizer of a thousand tokens, trained on this repository's README: for models of random weights.

It is no model; builders use `tokenizer()`.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

BOS, EOS, PAD = "<|startoftext|>", "<|endoftext|>", "<pad>"
PROSE = Path(__file__).parents[2] / "README.md"


def tokenizer(*, longest: int = 77, template: bool = True, extra: tuple[str, ...] = ()) -> PreTrainedTokenizerFast:
    """The tokenizer; with `template` it puts BOS and EOS around a text. `extra` are more control tokens."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=[BOS, EOS, PAD, *extra],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([PROSE.read_text()], trainer)
    if template:
        pairs = [(token, made.token_to_id(token)) for token in (BOS, EOS)]
        made.post_processor = processors.TemplateProcessing(single=f"{BOS} $A {EOS}", special_tokens=pairs)
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        unk_token=EOS,
        model_max_length=longest,
    )
