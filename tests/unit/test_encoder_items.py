"""How many items the encoder's profile run takes, and how large Llava-NeXT's are."""

from __future__ import annotations

import pytest

from planner.defaults import resolve
from planner.encoder_activation import encoder_peak
from planner.gpu_catalog import find_gpu
from planner.inventory import EncoderFacts
from planner.model_catalog import catalogue_documents
from planner.model_config import read_model
from planner.request import EngineFlags, PlanRequest

LLAVA = "llava-hf/llava-v1.6-mistral-7b-hf"


def _items(model_id: str, **flags: int) -> str:
    model = read_model(catalogue_documents(model_id))
    request = PlanRequest(model_id=model_id, gpu="L4", vllm_version="0.13.0", flags=EngineFlags(**flags))  # type: ignore[arg-type]
    peak = encoder_peak(model, resolve(request, model, find_gpu("L4")))
    assert peak is not None
    return peak.formula.split(",")[0]


def _largest(model_id: str) -> EncoderFacts:
    (encoder,) = read_model(catalogue_documents(model_id)).encoders
    return encoder


def test_llava_next_counts_an_image_and_its_tiles() -> None:
    encoder = _largest(LLAVA)

    # 672 x 672 of 336 x 336 tiles: the whole image, four tiles, and a token at each of 48 lines' ends
    assert encoder.output_tokens_per_item == 576 + 48 * 48 + 48
    assert encoder.patch_tokens_per_item == 5 * 576


@pytest.mark.parametrize(
    ("flags", "items"),
    [
        ({"max_num_batched_tokens": 16_384}, "5 image items"),  # logged by a start on an H100
        ({"max_num_batched_tokens": 8_192, "max_num_seqs": 1, "max_model_len": 4_096}, "1 image items"),
        ({"max_num_batched_tokens": 8_192, "max_num_seqs": 1, "max_model_len": 8_192}, "2 image items"),
        ({"max_num_batched_tokens": 8_192, "max_num_seqs": 8, "max_model_len": 2_048}, "2 image items"),
    ],
)
def test_a_prompt_brings_no_more_items_than_its_length_holds(flags: dict[str, int], items: str) -> None:
    assert _items(LLAVA, **flags) == items
