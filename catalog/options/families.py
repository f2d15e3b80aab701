"""Options that a family of models does nothing with, though its verb and kinds would have them.

The door refuses them by name. A family that reads all that its kinds allow, or that is not known here, needs no line.
The contract suite watches which options each family reads, and holds these lines against it.
"""

from __future__ import annotations

from catalog.terms import Verb

_UNREAD: dict[tuple[str, Verb], frozenset[str]] = {
    ("docling", Verb.EXTRACT): frozenset({"instruction", "language"}),
    ("donut", Verb.EXTRACT): frozenset({"threshold", "language", "output_schema", "classification_task"}),
    ("fake_generator", Verb.GENERATE): frozenset({"grammar", "logprobs", "top_logprobs"}),
    ("florence2", Verb.EXTRACT): frozenset(
        {"threshold", "score_threshold", "box_threshold", "text_threshold", "top_k", "language"}
    ),
    ("gliner", Verb.EXTRACT): frozenset({"instruction", "top_k"}),
    ("gliner2", Verb.EXTRACT): frozenset({"instruction", "top_k", "hypothesis_template", "examples"}),
    ("glirel", Verb.EXTRACT): frozenset({"instruction", "flat_ner"}),
    ("grounding_dino", Verb.EXTRACT): frozenset({"instruction", "task"}),
    ("llama_cpp", Verb.GENERATE): frozenset({"min_tokens"}),
    ("owlv2", Verb.EXTRACT): frozenset({"instruction", "task"}),
    ("rapidocr", Verb.EXTRACT): frozenset({"instruction", "language", "max_new_tokens", "num_beams"}),
    ("sequence_classifier", Verb.EXTRACT): frozenset({"instruction", "multi_label", "hypothesis_template", "examples"}),
    ("token_classifier", Verb.EXTRACT): frozenset({"instruction", "multi_label", "flat_ner"}),
    ("whisper", Verb.EXTRACT): frozenset({"instruction"}),
    ("zero_shot_nli", Verb.EXTRACT): frozenset({"instruction", "examples"}),
}


def unread(family: str, verb: Verb) -> frozenset[str]:
    """The options of the verb that models of this family do nothing with; none for a family that has no line."""
    return _UNREAD.get((family, verb), frozenset())


_UNKEPT: dict[str, frozenset[str]] = {"llama_cpp": frozenset({"regex", "lark"})}


def unkept(family: str) -> frozenset[str]:
    """The kinds of grammar that models of this family cannot be locked to; none for a family that has no line."""
    return _UNKEPT.get(family, frozenset())
