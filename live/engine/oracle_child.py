"""Run by the engine environment's Python: builds models on the meta device and says what vLLM would hold of them.

    python -m live.engine.oracle_child < QUESTIONS.json > ANSWERS.jsonl

Each question is answered in a fork of its own, so that nothing of one build is left for the next.
"""

# vLLM and torch are imported where the card already stands in for
# ruff: noqa: PLC0415
from __future__ import annotations

import json
import math
import os
import pickle
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

from live.engine import cuda_stand_in

Record = dict[str, Any]  # parsed JSON


def main() -> int:
    """The exit status: 0 once every question has its line."""
    questions: list[Record] = json.load(sys.stdin)
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever prints, prints to standard error
    cuda_stand_in.install(tuple(questions[0]["compute_capability"]))
    import vllm.engine.arg_utils

    cuda_stand_in.finish()
    import vllm.v1.worker.gpu_model_runner  # noqa: F401 - loaded once, before the forks

    _register_configs()
    for question in questions:
        line = json.dumps(_forked(_answer, question)) + "\n"
        os.write(answers, line.encode())
    return 0


def _forked(work: Any, *arguments: Any) -> Any:
    """What `work(*arguments)` returned in a fork, or an answer that says that the fork died."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        with os.fdopen(write, "wb") as pipe:
            pipe.write(pickle.dumps(work(*arguments)))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        content = pipe.read()
    os.waitpid(pid, 0)
    return pickle.loads(content) if content else {"error": "The build died without a word.", "stage": "build"}  # noqa: S301 - our own fork's


def _answer(question: Record) -> Record:
    """The answer over all pipeline stages: each is built apart, the pool is planned over all."""
    stages = range(question["pipeline_parallel_size"])
    built = [_forked(_built, question, stage) for stage in stages]
    failed = next((stage for stage in built if stage.get("error")), None)
    if failed is not None:
        return {"id": question["id"], "error": failed["error"], "stage": failed["stage"]}
    specs = [stage.pop("specs") for stage in built]
    pool = _forked(_planned, question, specs, built[0]["block_size"], built[0]["layouts"])
    about: Record = built[0]["model"]
    return {"id": question["id"], "ranks": built, "pool": pool} | about


def _engine_config(question: Record, folder: str) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    world = question["tensor_parallel_size"] * question["pipeline_parallel_size"]
    return EngineArgs(
        model=folder,
        tokenizer=folder,
        skip_tokenizer_init=True,
        enforce_eager=True,
        load_format="dummy",
        trust_remote_code=False,
        tensor_parallel_size=question["tensor_parallel_size"],
        pipeline_parallel_size=question["pipeline_parallel_size"],
        distributed_executor_backend="mp" if world > 1 else None,
        gpu_memory_utilization=0.9,
        **question["engine"],
    ).create_engine_config()


def _model_folder(question: Record) -> str:
    folder = tempfile.mkdtemp(prefix="kvscope-oracle-")
    Path(folder, "config.json").write_text(question["config_json"], encoding="utf-8")
    if question.get("hf_quant_config_json"):
        Path(folder, "hf_quant_config.json").write_text(question["hf_quant_config_json"], encoding="utf-8")
    return folder


def _built(question: Record, stage: int) -> Record:
    folder = _model_folder(question)
    step = "config"
    try:
        config = _engine_config(question, folder)
        step = "build"
        return _read(config, stage)
    except Exception as error:  # noqa: BLE001 - a refusal is an answer
        return {"error": f"{type(error).__name__}: {str(error)[:2000]}", "stage": step}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read(config: Any, stage: int) -> Record:
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts
    from vllm.v1.worker import worker_base
    from vllm.v1.worker.workspace import init_workspace_manager

    with set_current_vllm_config(config):
        _pretend_distributed(config, stage)
        torch.set_default_dtype(config.model_config.dtype)
        init_workspace_manager(torch.device("meta"))
        with cuda_stand_in.meta_device():
            model = initialize_model(vllm_config=config)
        weights = _weights(model, config)
        current_platform.update_block_size_for_backend(config)
        specs, num_shared = _specs(config)
        layouts = [
            layout.name for layout in get_supported_kv_cache_layouts(worker_base.get_current_attn_backends(config))
        ]
    return weights | {
        "specs": specs,
        "layers": _layers(specs),
        "num_layers_sharing_kv": num_shared,
        "block_size": config.cache_config.block_size,
        "layouts": layouts,
        "model": _about(config, model),
    }


def _about(config: Any, model: Any) -> Record:
    import vllm

    return {
        "vllm_version": vllm.__version__,
        "model_class": type(model).__name__,
        "dtype": _name(config.model_config.dtype),
        "quantization": config.model_config.quantization,
        "kv_cache_dtype": config.cache_config.cache_dtype,
    }


def _pretend_distributed(config: Any, stage: int) -> None:
    """A group of ranks that all are this process; rank 0 of the stage's tensor-parallel group is built."""
    import torch
    import vllm.distributed.parallel_state as state
    from torch import distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    parallel = config.parallel_config
    tensor, pipeline = parallel.tensor_parallel_size, parallel.pipeline_parallel_size
    rank, world = stage * tensor, tensor * pipeline
    distributed.init_process_group(backend="fake", store=FakeStore(), rank=rank, world_size=world)
    real_group = distributed.new_group

    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, **options: Any) -> Any:  # noqa: ARG001 - its names
        return real_group(ranks=ranks, backend="fake")

    distributed.new_group = torch.distributed.new_group = new_group
    state.in_the_same_node_as = lambda *_args, **_kwargs: [True] * world
    state.init_distributed_environment(world, rank, "tcp://127.0.0.1:1", rank, "fake")
    state.initialize_model_parallel(tensor, pipeline)


def _weights(model: Any, config: Any) -> Record:
    by_dtype: Counter[str] = Counter()
    for parameter in model.parameters():
        by_dtype[_name(parameter.dtype)] += parameter.numel() * parameter.element_size()
    buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    return {
        "parameter_bytes_by_dtype": dict(by_dtype),
        "buffer_bytes": buffers,
        "absorbed_bytes": _absorbed_bytes(model, config),
        "kernels": _kernels(model),
    }


def _kernels(model: Any) -> list[str]:
    """How the weights are held: each quantisation method, with the kernels it chose."""
    found: set[str] = set()
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if method is not None:
            chosen = (value for name, value in vars(method).items() if name.endswith("backend") and not callable(value))
            found.add(" ".join([type(method).__name__, *map(str, chosen)]))
    return sorted(found)


def _absorbed_bytes(model: Any, config: Any) -> int:
    """MLA's two projections that loading makes out of a quantised kv_b_proj; of a plain one they are views."""
    from vllm.model_executor.layers.attention.mla_attention import MLAAttention

    dtype = config.model_config.dtype
    total = 0
    for module in model.modules():
        if not isinstance(module, MLAAttention) or getattr(module, "kv_b_proj", None) is None:
            continue
        weight = getattr(module.kv_b_proj, "weight", None)
        if weight is None or weight.dtype != dtype:
            width = module.qk_nope_head_dim + module.v_head_dim
            total += module.num_heads * module.kv_lora_rank * width * dtype.itemsize
    return total


def _specs(config: Any) -> tuple[Record, int]:
    """Each layer's KV-cache spec, as the model runner collects them, and how many layers use another's."""
    from vllm.config import get_layers_from_vllm_config
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
    from vllm.v1.kv_cache_interface import AttentionSpec
    from vllm.v1.worker import gpu_model_runner

    customise = getattr(gpu_model_runner, "customize_attention_spec", None)
    specs: Record = {}
    num_shared = 0
    for name, layer in get_layers_from_vllm_config(config, AttentionLayerBase).items():
        if getattr(layer, "kv_sharing_target_layer_name", None):
            num_shared += 1
            continue
        spec = layer.get_kv_cache_spec(config)
        if not spec:
            continue
        if customise is not None and isinstance(spec, AttentionSpec):
            spec = customise(layer.get_attn_backend(), spec)
        specs[name] = spec
    return specs, num_shared


def _layers(specs: Record) -> list[Record]:
    """Equal layers as one row with their number."""
    rows: dict[str, Record] = {}
    for spec in specs.values():
        row = _spec_row(spec)
        rows.setdefault(json.dumps(row, sort_keys=True), row | {"num_layers": 0})["num_layers"] += 1
    return list(rows.values())


def _spec_row(spec: Any) -> Record:
    row: Record = {
        "kind": type(spec).__name__,
        "block_size": spec.block_size,
        "page_bytes": spec.page_size_bytes,
        "sliding_window": getattr(spec, "sliding_window", None) or getattr(spec, "attention_chunk_size", None),
    }
    if hasattr(spec, "shapes"):  # a recurrent state, not a cache that grows
        sizes = zip(spec.shapes, spec.dtypes, strict=True)
        return row | {"state_bytes": sum(math.prod(shape) * dtype.itemsize for shape, dtype in sizes), "token_bytes": 0}
    content = getattr(spec, "real_page_size_bytes", None) or spec.page_size_bytes
    return row | {"state_bytes": 0, "token_bytes": content / spec.block_size}


def _planned(question: Record, specs: list[Record], block_size: int, layouts: list[str]) -> Record:
    """VLLM's own plan of the pool over all stages, or its own refusal."""
    from vllm.v1.attention.backends.utils import resolve_kv_cache_layout
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs

    folder = _model_folder(question)
    try:
        config = _engine_config(question, folder)
        register_all_kvcache_specs(config)
        cache = config.cache_config
        cache.block_size, cache.kv_cache_layout = block_size, None
        resolve_kv_cache_layout(config, [layouts] * len(specs), [spec for rank in specs for spec in rank.values()])
        configs = kv_cache_utils.get_kv_cache_configs(config, specs, question["available_bytes"])
        whole = kv_cache_utils.generate_scheduler_kv_cache_config(configs)
        tokens, concurrency = kv_cache_utils.get_kv_cache_capacity(config, whole)
    except Exception as error:  # noqa: BLE001 - a refusal is an answer
        return {"error": f"{type(error).__name__}: {str(error)[:2000]}"}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "num_blocks": whole.num_blocks,
        "tokens": tokens,
        "max_concurrency": concurrency,
        "max_model_len": config.model_config.max_model_len,
        "groups": [
            {
                "kind": type(group.kv_cache_spec).__name__,
                "num_layers": len(group.layer_names),
                "block_size": group.kv_cache_spec.block_size,
                "page_bytes": group.kv_cache_spec.page_size_bytes,
            }
            for group in configs[0].kv_cache_groups
        ],
    }


def _register_configs() -> None:
    """Config classes that stand in a model's own repository, whose code is never run, as plain data."""
    import types

    from transformers import AutoConfig, PretrainedConfig

    def as_object(value: Any) -> Any:
        if isinstance(value, dict):
            return types.SimpleNamespace(**{name: as_object(item) for name, item in value.items()})
        return [as_object(item) for item in value] if isinstance(value, list) else value

    class NasConfig(PretrainedConfig):  # type: ignore[misc]  # transformers has no types here
        model_type = "nemotron-nas"

        def __init__(self, block_configs: Any = None, **values: Any) -> None:
            self.__dict__.update(values)  # checks of the rotary settings read them early
            super().__init__(**values)
            self.block_configs = as_object(block_configs or [])

        def to_dict(self) -> dict[str, Any]:
            return {name: value for name, value in self.__dict__.items() if name != "block_configs"}

    AutoConfig.register(NasConfig.model_type, NasConfig, exist_ok=True)


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


if __name__ == "__main__":
    sys.exit(main())
