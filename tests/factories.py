"""Small makers that many tests share: a card, resolved flags, a catalogue model's documents."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from planner.defaults import Resolved
from planner.facts import Basis, Estimate
from planner.gpu_catalog import GpuFacts
from planner.inventory import ModelDocuments
from planner.request import EngineFlags
from planner.units import GIB
from planner.versions import era_of, parse_version

CATALOGUE = Path(__file__).parents[1] / "planner" / "data" / "models"
SHARED = Path(__file__).parents[2] / "shared"


def make_gpu(**changes: Any) -> GpuFacts:
    """An 80 GiB card of compute capability 9.0."""
    total = Estimate.exact(80 * GIB, Basis(kind="assumed", note="a test's card"))
    facts = {
        "name": "Test 80",
        "vendor": "NVIDIA",
        "nvml_names": (),
        "total": total,
        "driver_total_bytes": None,
        "marketed_gb": 80.0,
        "capability": (9, 0),
        "bandwidth_bytes_per_second": None,
        "bf16_flops_per_second": None,
    }
    return GpuFacts(**(facts | changes))


def make_resolved(*, tp: int = 1, pp: int = 1, dp: int = 1, version: str = "0.33.0", **changes: Any) -> Resolved:
    """Flags as an API server on an H100 resolves them, with `changes`."""
    release = parse_version(version)
    values: dict[str, Any] = {
        "version": release,
        "era": era_of(release),
        "runner": "v2",
        "compile_cache": "unknown",
        "gpu": make_gpu(),
        "flags": EngineFlags(tensor_parallel_size=tp, pipeline_parallel_size=pp, data_parallel_size=dp),
        "gpu_memory_utilization": 0.92,
        "max_model_len": 32768,
        "is_auto_length": False,
        "max_num_seqs": 1024,
        "max_num_batched_tokens": 8192,
        "dtype": "bfloat16",
        "kv_cache_dtype": "bfloat16",
        "quantization": None,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "is_hybrid_manager_enabled": True,
        "async_scheduling": True,
        "max_concurrent_batches": 2,
        "max_in_flight_tokens": 16384,
        "num_speculative_tokens": 0,
        "cudagraph_mode": "FULL_AND_PIECEWISE",
        "capture_sizes": (1, 2, 4, 8),
        "mamba_cache_mode": "align",
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "ep": 1,
        "dcp": 1,
    }
    return Resolved(**(values | changes))


def documents_for(path: Path) -> ModelDocuments:
    """The documents of one catalogue or ground-truth file."""
    entry = json.loads(path.read_text(encoding="utf-8"))
    separate = entry.get("hf_quant_config")
    weights = entry.get("weights") or {}
    return ModelDocuments(
        model_id=entry.get("model_id") or (entry.get("model_ids") or ["?"])[0],
        config_json=json.dumps(entry["config"]),
        hf_quant_config_json=json.dumps(separate) if separate else None,
        checkpoint_total_bytes=weights.get("total_size_bytes"),
        is_config_complete=entry.get("config_complete", True),
        source=f"file {path.name}",
    )


def make_documents(config: dict[str, Any], **changes: Any) -> ModelDocuments:
    """Documents that hold just this config."""
    return ModelDocuments(**({"model_id": "test/model", "config_json": json.dumps(config)} | changes))


def shared_file(*names: str) -> Path:
    """A file of the shared truth folder; where it is absent the test skips, in CI it fails."""
    path = SHARED.joinpath(*names)
    if not path.exists():
        message = f"{path.name} is not beside this checkout"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message, allow_module_level=True)
    return path
