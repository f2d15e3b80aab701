"""Which family serves a repository, by what its config files say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from catalog.places import FolderPlace
from catalog.repository import Repository, is_config
from catalog.resolve import Refusal, resolve
from catalog.schema import Spec
from tests.small import folder

WEIGHTS = {"model.safetensors": 4_000}
POOLED = [
    {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]


def found(configs: Mapping[str, Any], files: Mapping[str, int] = WEIGHTS, **values: Any) -> Spec | Refusal:
    names = dict.fromkeys(configs, 100)
    return resolve("org/m", Repository("r", {**names, **files}, configs, **values), {"hub": "org/m", "revision": "r"})


def spec(configs: Mapping[str, Any], files: Mapping[str, int] = WEIGHTS, **values: Any) -> Spec:
    answer = found(configs, files, **values)
    assert isinstance(answer, Spec), answer
    return answer


def config(architecture: str, **values: Any) -> dict[str, Any]:
    return {"config.json": {"architectures": [architecture], **values}}


@pytest.mark.parametrize(
    ("configs", "family", "verb"),
    [
        (config("BertForSequenceClassification", id2label={"0": "LABEL_0"}), "cross_encoder", "score"),
        (config("BertForSequenceClassification", id2label={"0": "entailment", "1": "no"}), "zero_shot_nli", "extract"),
        (config("BertForSequenceClassification", id2label={"0": "SAFE", "1": "BAD"}), "sequence_classifier", "extract"),
        (config("BertForTokenClassification", id2label={"0": "O", "1": "B-PER"}), "token_classifier", "extract"),
        (config("CLIPModel", projection_dim=512), "vision_text", "encode"),
        (config("SiglipModel", vision_config={"hidden_size": 768}), "vision_text", "encode"),
        (config("ColPaliForRetrieval", embedding_dim=128), "page_images", "encode"),
        (config("WhisperForConditionalGeneration"), "whisper", "extract"),
        (config("GroundingDinoForObjectDetection"), "grounding_dino", "extract"),
        (config("Owlv2ForObjectDetection"), "owlv2", "extract"),
        (config("OwlViTForObjectDetection", model_type="owlvit"), "owlv2", "extract"),
        (config("MMGroundingDinoForObjectDetection"), "grounding_dino", "extract"),
        (config("Florence2ForConditionalGeneration"), "florence2", "extract"),
        (config("VisionEncoderDecoderModel", encoder={"model_type": "donut-swin"}), "donut", "extract"),
        (config("Qwen3ForCausalLM"), "causal_lm", "generate"),
        (config("Qwen3_5ForConditionalGeneration", text_config={}), "vision_language", "generate"),
        (config("GLiClassModel"), "gliclass", "extract"),
        ({"config.json": {"model_type": "extractor"}}, "gliner2", "extract"),
        ({"gliner_config.json": {}}, "gliner", "extract"),
        ({"glirel_config.json": {}}, "glirel", "extract"),
    ],
)
def test_the_family_follows_from_the_architecture_and_its_head(configs: dict[str, Any], family: str, verb: str) -> None:
    model = spec(configs)
    assert model.family == family
    assert verb in model.verbs


def test_a_sentence_encoder_has_the_width_of_its_last_module_and_the_prompts_of_its_library() -> None:
    model = spec(
        {
            **config("BertModel", hidden_size=384, max_position_embeddings=512),
            "modules.json": [*POOLED, {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}],
            "1_Pooling/config.json": {"word_embedding_dimension": 384},
            "2_Dense/config.json": {"out_features": 256},
            "sentence_bert_config.json": {"max_seq_length": 128},
            "config_sentence_transformers.json": {"prompts": {"query": "query: ", "document": ""}},
        }
    )
    encode = model.tasks.encode
    assert encode is not None
    assert (model.family, encode.dims, encode.prompts, model.max_length) == (
        "sentence_transformer",
        256,
        {"query": "query: "},
        128,
    )


@pytest.mark.parametrize(
    ("kind", "modules", "family"),
    [
        ("SparseEncoder", POOLED[:1], "sparse_encoder"),
        ("ColBERT", POOLED[:1], "late_interaction"),
        ("CrossEncoder", POOLED[:1], "cross_encoder"),
    ],
)
def test_the_library_says_which_kind_of_model_its_modules_are(kind: str, modules: Any, family: str) -> None:
    dense = {"path": "1_Dense", "type": "sentence_transformers.models.Dense"}
    model = spec(
        {
            **config("BertForMaskedLM", vocab_size=100, id2label={"0": "LABEL_0"}),
            "modules.json": [*modules, *([dense] if kind == "ColBERT" else [])],
            "1_Dense/config.json": {"out_features": 96},
            "config_sentence_transformers.json": {"model_type": kind},
        }
    )
    assert model.family == family


@pytest.mark.parametrize(
    "configs",
    [
        {**config("HF_ColBERT", max_position_embeddings=512), "artifact.metadata": {"dim": 96, "doc_maxlen": 180}},
        {
            **config("BertModel", max_position_embeddings=512),
            "modules.json": [*POOLED[:1], {"path": "1_Dense", "type": "pylate.models.Dense.Dense"}],
            "1_Dense/config.json": {"out_features": 96},
            "config_sentence_transformers.json": {"query_prefix": "[Q] "},
        },
    ],
)
def test_other_librarys_layouts_of_late_interaction_are_known_and_need_no_code(configs: dict[str, Any]) -> None:
    model = spec(configs)
    assert model.tasks.encode is not None
    assert (model.family, model.tasks.encode.token_dims, model.source.needs) == ("late_interaction", 96, ())
    assert "multivector" in model.inputs


@pytest.mark.parametrize(
    ("configs", "files", "reason"),
    [
        ({}, {"README.md": 10}, "no config.json"),
        ({}, {"q4.gguf": 10}, "GGUF files only"),
        (
            {"adapter_config.json": {"base_model_name_or_path": "org/base"}},
            {},
            "adapter.*'loras' in a YAML of org/base",
        ),
        ({"config.json": {}}, WEIGHTS, "no config.json"),
        ({"config.json": {"model_type": "bert"}}, WEIGHTS, "names no architecture"),
        (config("ColModernVBertForRetrieval"), WEIGHTS, "is a ColModernVBertForRetrieval, which no family serves"),
        (config("VitsModel"), WEIGHTS, "is a VitsModel, which no family serves"),
        (config("VisionEncoderDecoderModel", encoder={"model_type": "vit"}), WEIGHTS, "no family serves"),
        (config("Qwen3ForCausalLM"), {}, "no weights"),
        (config("BertForMaskedLM"), WEIGHTS, "masked language model, and no modules.json says that it is a sparse"),
        (config("LayoutLMv3ForTokenClassification", model_type="layoutlmv3"), WEIGHTS, "which no family serves"),
        (config("Wav2Vec2ForSequenceClassification", model_type="wav2vec2"), WEIGHTS, "which no family serves"),
        (config("LayoutLMv3ForSequenceClassification", model_type="layoutlmv3"), WEIGHTS, "which no family serves"),
        ({"gliner_config.json": {"labels_decoder": "gpt2"}}, WEIGHTS, "generates its labels"),
        ({**config("CLIPModel"), "modules.json": [{"path": "", "type": "x.CLIPModel"}]}, WEIGHTS, "'CLIPModel'"),
        ({**config("BertModel"), "modules.json": []}, WEIGHTS, "lists no modules"),
        ({**config("BertModel"), "modules.json": POOLED}, WEIGHTS, "do not fit together: tasks.encode"),
    ],
)
def test_what_no_family_serves_is_refused_with_the_reason(
    configs: dict[str, Any], files: dict[str, int], reason: str
) -> None:
    answer = found(configs, files)
    assert isinstance(answer, Refusal)
    assert pytest.raises(AssertionError, match=reason).matches(AssertionError(answer.reason))


@pytest.mark.parametrize(
    ("own", "library", "scale"),
    [
        ({}, {}, "probability"),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, {}, "logit"),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, {}, "logit"),
        ({}, {"activation_fn": "torch.nn.modules.linear.Identity"}, "logit"),
        (
            {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
            {"activation_fn": "torch.nn.modules.activation.Sigmoid"},
            "probability",
        ),
    ],
)
def test_the_scale_of_a_reranker_is_that_of_the_activation_in_its_configs(
    own: dict[str, Any], library: dict[str, Any], scale: str
) -> None:
    configs = config("BertForSequenceClassification", model_type="bert", id2label={"0": "LABEL_0"}, **own)
    score = spec({**configs, "config_sentence_transformers.json": library}).tasks.score
    assert score is not None
    assert score.scale == scale


@pytest.mark.parametrize("path", ["own.Squash", "torch.nn.modules.activation.Tanh"])
def test_a_reranker_whose_scores_nobody_knows_the_meaning_of_is_refused(path: str) -> None:
    activation = {"sbert_ce_default_activation_function": path}
    answer = found(config("BertForSequenceClassification", id2label={"0": "LABEL_0"}, **activation))
    assert isinstance(answer, Refusal)
    assert answer.reason == f"gives its scores by {path!r}: what they mean has to be said in a YAML"


def test_a_gliner_with_a_layer_for_relations_finds_them() -> None:
    extract = spec({"gliner_config.json": {"relations_layer": "dot"}}).tasks.extract
    assert extract is not None
    assert extract.kinds == ("entities", "relations")


def test_a_detector_has_as_many_places_as_its_config_says() -> None:
    sizes = {"image_size": 64, "patch_size": 16}
    model = spec(config("Owlv2ForObjectDetection", vision_config=sizes, text_config={"max_position_embeddings": 12}))
    assert (model.image_length, model.max_length) == (16, 12)
    assert spec(config("OwlViTForObjectDetection", model_type="owlvit")).image_length == 576


def test_code_and_pickles_are_needs() -> None:
    own = config("GPT2LMHeadModelForCausalLM", auto_map={"AutoModelForCausalLM": "own.Model"})
    assert spec(own).source.needs == ("code",)
    assert spec(config("Qwen3ForCausalLM"), {"pytorch_model.bin": 9}).source.needs == ("pickle",)
    assert spec(config("Qwen3ForCausalLM"), {"pytorch_model.bin": 9, "model.safetensors": 9}).source.needs == ()
    foreign = [POOLED[0], {"path": "1_X", "type": "own_module.Pooling"}]
    assert spec({**config("BertModel", hidden_size=8), "modules.json": foreign}).source.needs == ("code",)


@pytest.mark.parametrize(
    ("model_type", "positions", "longest", "expected"),
    [
        ("bert", 512, None, 512),
        ("xlm-roberta", 514, 10**30, 512),
        ("modernbert", 8192, 8192, 8192),
        ("electra", None, 64, 64),
    ],
)
def test_the_length_is_the_least_of_what_the_configs_say(
    model_type: str, positions: int | None, longest: int | None, expected: int
) -> None:
    configs = config(
        "BertForTokenClassification",
        model_type=model_type,
        max_position_embeddings=positions,
        id2label={"0": "O", "1": "B-PER", "2": "I-PER"},
    )
    model = spec({**configs, "tokenizer_config.json": {"model_max_length": longest}})
    assert model.max_length == expected
    assert model.tasks.extract is not None
    assert model.tasks.extract.labels == ("PER",)


def test_the_weights_are_counted_by_the_hub_or_by_the_bytes_of_their_files() -> None:
    half = config("Qwen3ForCausalLM", torch_dtype="bfloat16")
    assert spec(half, parameters=7).parameters == 7
    assert spec(half).parameters == 2_000
    assert spec(config("Qwen3ForCausalLM")).parameters == 1_000


@pytest.mark.parametrize(
    "junk", [[], "x", 3, None, {"architectures": 3}, {"architectures": ["CLIPModel"], "id2label": 3}]
)
def test_a_config_that_holds_something_else_is_refused_and_nothing_breaks(junk: Any) -> None:
    assert isinstance(found({"config.json": junk}), Refusal | Spec)


def deep(levels: int) -> Any:
    value: Any = "Identity"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "configs",
    [
        config("CLIPModel", vision_config={"patch_size": 0}),
        config("CLIPModel", text_config={"max_position_embeddings": float("inf")}),
        config("CLIPModel", vision_config={"image_size": float("nan")}),
        {**config("Qwen3ForCausalLM"), "model.safetensors.index.json": {"metadata": {"total_size": float("inf")}}},
        config(
            "BertForSequenceClassification", id2label={"0": "a"}, sbert_ce_default_activation_function=deep(100_000)
        ),
    ],
    ids=["no patches", "endless", "not a number", "endless weights", "deep"],
)
def test_numbers_that_are_none_are_refused_with_a_reason(configs: dict[str, Any]) -> None:
    answer = found(configs)
    assert isinstance(answer, Refusal)
    assert "config files that" in answer.reason


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "1_Pooling/config.json", "modules.json"])
def test_configs_are_read(name: str) -> None:
    assert is_config(name)


@pytest.mark.parametrize("name", ["tokenizer.json", "a/b/config.json", ".cache/config.json", "own.py", "model.bin"])
def test_what_is_no_config_is_not(name: str) -> None:
    assert not is_config(name)


def test_no_config_is_so_large() -> None:
    assert not is_config("config.json", 2**30)


@pytest.mark.parametrize(
    ("small", "family"),
    [
        ("cross_encoder", "cross_encoder"),
        ("nli", "zero_shot_nli"),
        ("token_labels", "token_classifier"),
        ("clip", "vision_text"),
        ("siglip", "vision_text"),
        ("qwen3_embedding", "sentence_transformer"),
        ("whisper_tiny_en", "whisper"),
        ("gliner/span", "gliner"),
    ],
)
def test_folders_as_the_libraries_write_them_are_understood(small: str, family: str) -> None:
    name, _, part = small.partition("/")
    place = folder(name) / part
    there = FolderPlace(place.parent).look(place.name, None)
    assert there is not None
    answer = resolve("random/model", there.repository, there.source)
    assert isinstance(answer, Spec), answer
    assert answer.family == family
    assert answer.parameters > 0
