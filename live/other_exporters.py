"""Whose metrics a text holds that has none of vLLM's: servers of language models, by how their families' names begin."""

from __future__ import annotations

import re

_BEGINNINGS = (
    (r"sglang[:_]", "SGLang"),
    (r"tgi_", "Text Generation Inference"),
    (r"te_(?:request|embed|queue)", "Text Embeddings Inference"),
    (r"llamacpp[:_]", "llama.cpp"),
    (r"trtllm[:_]", "TensorRT-LLM"),
    (r"nv_(?:inference|trt_llm|gpu|energy|cpu|pinned|cache)_", "Triton Inference Server"),
    (r"dynamo_", "NVIDIA Dynamo"),
    (r"lmdeploy[:_]", "LMDeploy"),
    (r"lmcache[:_]", "LMCache"),
    (r"mlc_|mlc[:]", "MLC LLM"),
    (r"ollama_", "Ollama"),
    (r"litellm_", "LiteLLM"),
    (r"aphrodite[:_]", "Aphrodite"),
    (r"vllm_router[:_]", "vLLM's production-stack router"),
    (r"inference_(?:model|pool|extension|objective)_", "the Gateway API inference extension"),
    (r"DCGM_FI_", "NVIDIA's DCGM exporter"),
    (r"ray_(?!vllm)", "Ray"),
    (r"node_(?:cpu|memory|filesystem)_", "the node exporter"),
    (r"(?:python|process)_", "a Python server"),
)
_FAMILY = re.compile(r"^[^\n\w]{0,20}(?:#\s*(?:HELP|TYPE)\s+)?(?P<name>[A-Za-z][\w:]*)(?=[\s{])", re.MULTILINE)
_LONGEST_LOOKED_AT = 500_000
_OWN = re.compile("|".join(f"(?P<n{place}>{begin})" for place, (begin, _) in enumerate(_BEGINNINGS)))


def other_exporter(text: str) -> str | None:
    """The server that exports families as those in `text`, the more telling one of several; None where none is known."""
    found: set[int] = set()
    for family in _FAMILY.finditer(text[:_LONGEST_LOOKED_AT]):
        known = _OWN.match(family["name"])
        if known is not None and known.lastgroup is not None:
            found.add(int(known.lastgroup.removeprefix("n")))
    return _BEGINNINGS[min(found)][1] if found else None
