"""A small tokenizer with a chat template, for models of random weights that generate. It is no model."""

from __future__ import annotations

from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedTokenizerFast

from tests.small.bpe import tokenizer

BEGIN, END = "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{%- for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{%- if message['content'] is string %}{{ message['content'] }}"
    "{%- else %}{%- for part in message['content'] %}"
    "{%- if part['type'] == 'image' %}{{ '<image>' }}{%- else %}{{ part['text'] }}{%- endif %}{%- endfor %}{%- endif %}"
    "{{ '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{%- endif %}"
    "{%- endif %}"
)


def chatting(*extra: str, image: str = "<image>") -> PreTrainedTokenizerFast:
    """The tokenizer of a thousand tokens with the control tokens of a chat, and these; `image` stands for an image."""
    made = tokenizer(longest=100_000, template=False, extra=(BEGIN, END, *extra))
    made.eos_token = END
    made.chat_template = TEMPLATE.replace("<image>", image)
    return made


def lively(model: Any, tokens: PreTrainedTokenizerFast) -> Any:
    """The model with weights wide enough that its texts differ, and the tokens that end them."""
    torch.manual_seed(11)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "conv" not in name:
                parameter.normal_(0.0, 1.5 / parameter.shape[-1] ** 0.5)
    model.generation_config = GenerationConfig(
        eos_token_id=tokens.convert_tokens_to_ids(END), pad_token_id=tokens.pad_token_id, bos_token_id=None
    )
    return model.eval()
