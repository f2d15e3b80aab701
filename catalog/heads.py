"""Heads of transformers over texts: which models they are known of, and what the score of a reranker is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SCALES: Mapping[str, str] = {"Sigmoid": "probability", "Identity": "logit"}
"""What a score is under an activation of torch, by the name of its class."""

_TEXT_MODELS = (
    "albert arcee bart bert big_bird bigbird_pegasus biogpt bloom camembert convbert ctrl data2vec-text deberta "
    "deberta-v2 deepseek_v2 deepseek_v3 diffllama distilbert electra ernie eurobert exaone4 falcon flaubert fnet "
    "funnel gemma gemma2 gemma3_text glm glm4 gpt-sw3 gpt2 gpt_bigcode gpt_neo gpt_neox gpt_oss gptj helium ibert "
    "jamba llama longformer mbart megatron-bert ministral ministral3 mistral mixtral mobilebert modernbert "
    "modernbert-decoder mpnet mpt mra mt5 nemotron nomic_bert nystromformer olmo olmo2 olmo3 openai-gpt opt persimmon "
    "phi phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_5_text qwen3_moe qwen3_next reformer rembert roberta "
    "roberta-prelayernorm roc_bert roformer smollm3 squeezebert stablelm starcoder2 t5 t5gemma umt5 xlm xlm-roberta "
    "xlm-roberta-xl xlnet xmod yoso zamba zamba2"
)


def reads_text_alone(config: Mapping[str, Any]) -> bool:
    """Whether the body under a head is one of texts. Of code that comes with a model nobody can tell: yes."""
    kind = config.get("model_type")
    return not kind or kind in _TEXT_MODELS.split() or bool(config.get("auto_map"))


def activation_path(library: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """The class of a reranker's activation, as sentence-transformers finds it in its own config and in the model's."""
    own = config.get("sentence_transformers")
    said = library.get("activation_fn") or (own.get("activation_fn") if isinstance(own, Mapping) else None)
    return str(said or config.get("sbert_ce_default_activation_function") or "torch.nn.modules.activation.Sigmoid")
