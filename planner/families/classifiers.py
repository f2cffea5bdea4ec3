"""Classifiers and reward models that have a head of their own: BERT's relatives and Qwen2's reward model.

Heads compute in float32 (vLLM's head_dtype for pooling models).
"""

from __future__ import annotations

from dataclasses import replace

from planner.families import Builder, Built, FamilyInput, without_head
from planner.families.blocks import column_linear, norm, row_linear
from planner.families.dense import BUILDERS as DENSE
from planner.families.encoder_decoder import build_bert, build_modernbert
from planner.inventory import Module, Part, Tensor


def num_labels(given: FamilyInput) -> int:
    """The classes that the head tells apart: transformers takes them from `id2label`, two where nothing is said."""
    return len(given.root.values.get("id2label") or ()) or given.root.integer("num_labels", default=2)


def _dense(name: str, size_in: int, size_out: int, *, dtype: str | None, has_bias: bool = True) -> tuple[Module, ...]:
    weight = Tensor(name=f"{name}.weight", role="head", shape=(size_out, size_in), dtype=dtype)
    bias = Tensor(name=f"{name}.bias", role="head", shape=(size_out,), dtype=dtype)
    return (weight, bias) if has_bias else (weight,)


def _with_head(built: Built, *modules: Module) -> Built:
    return replace(built, parts=(*built.parts, Part(prefix="", stage="every", modules=modules)))


def build_bert_classifier(given: FamilyInput) -> Built:
    """BERT with its pooler and a classifier."""
    hidden = given.text.integer("hidden_size")
    pooler = _dense("pooler.dense", hidden, hidden, dtype="float32")
    return _with_head(build_bert(given), *pooler, *_dense("classifier", hidden, num_labels(given), dtype="float32"))


def build_roberta_classifier(given: FamilyInput) -> Built:
    """RoBERTa and XLM-RoBERTa (bge-reranker) with a head of two layers."""
    hidden = given.text.integer("hidden_size")
    dense = _dense("classifier.dense", hidden, hidden, dtype="float32")
    out = _dense("classifier.out_proj", hidden, num_labels(given), dtype="float32")
    return _with_head(build_bert(given), *dense, *out)


def build_modernbert_classifier(given: FamilyInput) -> Built:
    """ModernBERT with a prediction head, its norm and a classifier."""
    view, hidden = given.text, given.text.integer("hidden_size")
    dense = _dense("head.dense", hidden, hidden, dtype="float32", has_bias=view.flag("classifier_bias", default=False))
    head_norm = norm("head.norm", hidden, has_bias=view.flag("norm_bias", default=False))
    head_norm = tuple(replace(tensor, dtype="float32") for tensor in head_norm)
    out = _dense("classifier", hidden, num_labels(given), dtype="float32")
    return _with_head(build_modernbert(given), *dense, *head_norm, *out)


def _reward(given: FamilyInput, labels: int) -> Built:
    hidden = given.text.integer("hidden_size")
    layers: tuple[Module, ...] = (
        replace(column_linear("score.0", hidden, hidden, role="head", has_bias=True), dtype="float32"),
        replace(row_linear("score.2", hidden, labels, role="head", has_bias=True), dtype="float32"),
    )
    return _with_head(without_head(DENSE["Qwen2ForCausalLM"](given)), *layers)


def build_reward(given: FamilyInput) -> Built:
    """Qwen2.5-RM: one value from two linears on the last state."""
    return _reward(given, 1)


def build_process_reward(given: FamilyInput) -> Built:
    """Qwen2.5-PRM: right or wrong, for every step."""
    return _reward(given, 2)


BUILDERS: dict[str, Builder] = {
    "BertForSequenceClassification": build_bert_classifier,
    "ModernBertForSequenceClassification": build_modernbert_classifier,
    "Qwen2ForProcessRewardModel": build_process_reward,
    "Qwen2ForRewardModel": build_reward,
    "RobertaForSequenceClassification": build_roberta_classifier,
    "XLMRobertaForSequenceClassification": build_roberta_classifier,
}
