"""A pasted command, container line or args file as a request's fields, with a finding for whatever is not understood.

Nothing in the text is run, expanded or looked up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from planner.command_words import Words, read_words
from planner.facts import Finding, PlanError, Severity
from planner.flags import Flag, find_flag
from planner.request import PlanRequest
from planner.request_mapping import FLAG_READERS, request_from_mapping, request_to_mapping
from planner.request_values import read_integers, read_object, refuse
from planner.versions import Version, parse_version
from planner.yaml_subset import Node

_TRUTHS = {"true": True, "1": True, "false": False, "0": False}
# Flags that change GPU memory but that a plan does not follow: said, so that nobody trusts a number they would change.
_NOT_MODELLED = frozenset(
    [
        "additional-config", "calculate-kv-scales", "cpu-offload-params", "disable-custom-all-reduce", "enable-dbo",
        "enable-eplb", "engram-config", "eplb-config", "hf-overrides", "hf-config-path", "kv-cache-dtype-skip-layers",
        "kv-sharing-fast-prefill", "kv-transfer-config", "ec-transfer-config", "load-format", "lora-dtype", "mamba-block-size",
        "max-num-partial-prefills", "max-seq-len-to-capture", "mm-encoder-only", "mm-encoder-tp-mode", "mm-processor-kwargs",
        "model-class-overrides", "model-impl", "num-redundant-experts", "num-scheduler-steps", "offload-backend",
        "offload-group-size", "offload-num-in-group", "offload-params", "offload-prefetch-step", "override-attention-dtype",
        "prefill-context-parallel-size", "quantization-config", "rope-scaling", "rope-theta", "runner",
        "specialize-active-lora", "task", "watermark-config",
    ]
)  # fmt: skip
_NOT_MODELLED_ENVIRONMENT = frozenset(
    [
        "VLLM_CPU_KVCACHE_SPACE", "VLLM_ENABLE_STARTUP_PLAN", "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE", "VLLM_MLA_DISABLE",
        "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "VLLM_PP_LAYER_PARTITION", "VLLM_USE_FLASHINFER_SAMPLER",
        "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE", "VLLM_USE_BREAKABLE_CUDAGRAPH", "VLLM_BATCH_INVARIANT",
    ]
)  # fmt: skip
_SPECULATIVE = {
    "spec-method": "method",
    "spec-model": "model",
    "spec-tokens": "num_speculative_tokens",
    "speculative-model": "model",
    "num-speculative-tokens": "num_speculative_tokens",
    "speculative-draft-tensor-parallel-size": "draft_tensor_parallel_size",
}
# -O0 and -O1 by the mode they choose; -O2 and -O3 are the default.
_MODE_OF_LEVEL = {"0": "NONE", "1": "PIECEWISE"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCommand:
    """What a command says: `fields` by a request's keys, and findings for what was not understood."""

    fields: tuple[tuple[str, object], ...]
    findings: tuple[Finding, ...]
    num_cards: int | None = None  # cards passed into a container, when it says so

    def apply(self, base: PlanRequest) -> PlanRequest:
        """`base` with its model and flags replaced by the command's; card and memory stay as they are."""
        kept = {name: value for name, value in request_to_mapping(base).items() if name not in FLAG_READERS}
        given = dict(self.fields)
        if "model_id" in given:
            for name in ("revision", "config_json"):
                kept.pop(name, None)
        return request_from_mapping({**kept, **given})


def parse_command(text: str, vllm_version: str) -> ParsedCommand:
    """The fields and findings of `text`; an image's tag overrides `vllm_version`. Never raises for what the text holds."""
    words = read_words(text)
    reading = _Reading(version=parse_version(vllm_version))
    _read_image(words.image, reading)
    _read_environment(words.environment, reading)
    if words.config_file:
        _read_config_file(words.config_file, reading)
    else:
        _read_arguments(words.arguments, reading)
    _finish(reading, words)
    return ParsedCommand(
        fields=tuple(reading.record.items()), findings=tuple(reading.findings), num_cards=words.num_cards
    )


@dataclass(slots=True)
class _Reading:
    """What has been read so far; filled in order."""

    version: Version
    record: dict[str, Any] = field(default_factory=dict)  # a request's key -> value as its reader will take it
    speculative: dict[str, object] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def find(self, code: str, text: str, name: str | None = None, severity: Severity = "warning") -> None:
        """Record a finding, once."""
        finding = Finding(code=code, severity=severity, text=text, field=name)
        if finding not in self.findings:
            self.findings.append(finding)

    def put(self, name: str, value: object) -> None:
        """Record `value` for flag field `name` when its reader takes it, else a finding."""
        try:
            FLAG_READERS[name](name, value)
        except PlanError as refusal:
            self.find("value-not-understood", refusal.text, name)
        else:
            before = self.record.get(name)
            if isinstance(before, dict) and isinstance(value, dict):
                value = before | value  # --limit-mm-per-prompt.image 2 --limit-mm-per-prompt.video 1
            self.record[name] = value

    def merge(self, target: dict[str, object], name: str, value: object) -> None:
        """Add the JSON object `value` to `target`, or record a finding."""
        try:
            target.update(read_object(name, value))
        except PlanError as refusal:
            self.find("value-not-understood", refusal.text, name)


def _read_image(image: str | None, reading: _Reading) -> None:
    if image is None:
        return
    tag = re.search(r":v?(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)", image[:300])
    if "vllm" not in image.lower():
        reading.find("image-not-vllm", f"The image {image[:80]} is not known to hold vLLM.", "vllm_version", "info")
    if tag is None:
        text = f"The image {image[:80]} names no vLLM release; the one chosen above is used."
        reading.find("image-without-version", text, "vllm_version", "info")
        return
    reading.version = parse_version(tag[1])
    reading.record["vllm_version"] = tag[1]


def _read_environment(environment: dict[str, str], reading: _Reading) -> None:
    runner = environment.get("VLLM_USE_V2_MODEL_RUNNER", "").strip().lower()
    if runner in _TRUTHS:
        reading.record["model_runner"] = "v2" if _TRUTHS[runner] else "v1"
    if environment.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "").strip() == "1":
        reading.record["allow_long_max_model_len"] = True
    if backend := environment.get("VLLM_ATTENTION_BACKEND"):
        reading.put("attention_backend", backend)
    if environment.get("VLLM_USE_V1", "").strip() == "0" and reading.version >= (0, 8, 0):
        text = "VLLM_USE_V1=0 asks for the V0 engine; the plan follows the engine this release starts by itself."
        reading.find("environment-not-modelled", text)
    for name in sorted(_NOT_MODELLED_ENVIRONMENT & environment.keys()):
        reading.find("environment-not-modelled", f"{name} changes memory, and the plan does not follow it.")


def _read_config_file(pairs: dict[str, Node], reading: _Reading) -> None:
    for key, value in pairs.items():
        name = key.lstrip("-").replace("_", "-")
        if name == "model-tag":
            name = "model"
        flag = _known(f"--{name}", reading)
        if flag is None:
            continue
        _check_release(flag, reading)
        is_text = flag.kind == "switch" and not isinstance(value, bool)
        _apply(flag, _TRUTHS.get(str(value).lower(), True) if is_text else value, reading)


def _read_arguments(arguments: list[str], reading: _Reading) -> None:
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word in ("\\", "`", "--") or not word:
            continue
        if not word.startswith("-"):
            _read_positional(word, reading)
        elif level := re.fullmatch(r"-O=?(\d)", word):
            _apply_level(level[1], reading)
        else:
            _read_option(word, rest, reading)


def _read_positional(word: str, reading: _Reading) -> None:
    if "model_id" in reading.record:
        reading.find("argument-not-understood", f"{word[:80]!r} stands where no argument is expected.")
    else:
        _put_text("model_id", word, reading)


def _put_text(name: str, value: object, reading: _Reading) -> None:
    text = str(value).strip()
    if text and text.isprintable() and len(text) <= 500:
        reading.record[name] = text
    else:
        reading.find("value-not-understood", f"{name} is {text!r:.60}; write its name on one line.", name)


def _read_option(word: str, rest: list[str], reading: _Reading) -> None:
    option, joined, value = word.partition("=")
    option, dotted, path = option.partition(".")
    if not option.startswith("--no-") and not option.startswith("--no_"):
        flag, wanted = _known(option, reading), True
    else:
        positive = find_flag("--" + option[5:], reading.version)
        flag, wanted = (positive, False) if positive and positive.kind == "switch" else (_known(option, reading), True)
    if flag is None:
        if not joined and rest and not rest[0].startswith("-"):
            rest.pop(0)  # most likely its value
        return
    if dotted:
        _apply_dotted(flag, path, value if joined else _take(flag, rest, reading), reading)
    elif flag.kind == "switch":
        _check_release(flag, reading)
        _apply(flag, _switch(value if joined else None, rest) == wanted, reading)
    else:
        _check_release(flag, reading)
        _apply(flag, value if joined else _take(flag, rest, reading), reading)


def _known(option: str, reading: _Reading) -> Flag | None:
    flag = find_flag(option, reading.version)
    if flag is None:
        release = ".".join(map(str, reading.version))
        reading.find(
            "flag-unknown", f"{option[:80]} is no flag of vLLM {release} nor of any release read.", option[:80]
        )
    return flag


def _check_release(flag: Flag, reading: _Reading) -> None:
    if not flag.is_in(reading.version):
        release = ".".join(map(str, reading.version))
        text = f"vLLM {release} has no --{flag.name}: {flag.why_not_in(reading.version)}. It would refuse to start with it."
        reading.find("flag-not-in-version", text, flag.name.replace("-", "_"))


def _switch(joined: str | None, rest: list[str]) -> bool:
    """A switch's value: given after =, or, as old releases allow, as the next word."""
    if joined is not None:
        return _TRUTHS.get(joined.strip().lower(), True)
    if rest and rest[0].lower() in ("true", "false"):
        return _TRUTHS[rest.pop(0).lower()]
    return True


def _take(flag: Flag, rest: list[str], reading: _Reading) -> object:
    """The word or words that belong to `flag`; None with a finding when there is none."""
    if flag.kind == "list":
        words = []
        while rest and not re.match(r"-{1,2}[A-Za-z]", rest[0]):
            words.append(rest.pop(0))
        return words
    if not rest or (rest[0].startswith("-") and not re.match(r"-\d", rest[0])):
        reading.find("value-missing", f"--{flag.name} is given without a value.", flag.name.replace("-", "_"))
        return None
    return rest.pop(0)


def _apply(flag: Flag, value: object, reading: _Reading) -> None:
    """Record what `flag` with `value` means for a request."""
    name = flag.name.replace("-", "_")
    if value is None:
        return
    if flag.name in ("model", "revision"):
        _put_text("model_id" if name == "model" else name, value, reading)
    elif flag.name == "speculative-config":
        reading.merge(reading.speculative, name, value)
    elif flag.name in _SPECULATIVE:
        reading.speculative[_SPECULATIVE[flag.name]] = value
    elif flag.name in ("compilation-config", "optimization-level"):
        _apply_compilation(value, reading)
    elif flag.name == "attention-config":
        _apply_attention(value, reading)
    elif flag.name == "cuda-graph-sizes":
        _apply_graph_sizes(value, reading)
    elif name in FLAG_READERS:
        reading.put(name, value)
    elif flag.name in _NOT_MODELLED:
        reading.find("flag-not-modelled", f"--{flag.name} changes memory, and the plan does not follow it.", name)


def _apply_dotted(flag: Flag, path: str, value: object, reading: _Reading) -> None:
    """--speculative-config.method mtp: one entry of a JSON flag."""
    if value is None:
        return
    nested: dict[str, object] = {}
    inner = nested
    *parents, last = [part.replace("-", "_") for part in path.removesuffix("+").split(".")[:20]]
    for parent in parents:
        child: dict[str, object] = {}
        inner[parent] = child
        inner = child
    inner[last] = value
    _check_release(flag, reading)
    _apply(flag, nested, reading)


def _apply_level(level: str, reading: _Reading) -> None:
    if level in _MODE_OF_LEVEL:
        reading.put("cudagraph_mode", _MODE_OF_LEVEL[level])


def _apply_compilation(value: object, reading: _Reading) -> None:
    if re.fullmatch(r"\d", str(value).strip()):
        _apply_level(str(value).strip(), reading)
        return
    config: dict[str, object] = {}
    reading.merge(config, "compilation_config", value)
    mode = config.get("cudagraph_mode")
    if mode is not None:
        reading.put("cudagraph_mode", str(mode).upper())
    for name in ("cudagraph_capture_sizes", "max_cudagraph_capture_size"):
        if config.get(name) is not None:
            reading.put(name, config[name])


def _apply_attention(value: object, reading: _Reading) -> None:
    config: dict[str, object] = {}
    reading.merge(config, "attention_config", value)
    if config.get("backend") is not None:
        reading.put("attention_backend", config["backend"])


def _apply_graph_sizes(value: object, reading: _Reading) -> None:
    """--cuda-graph-sizes (0.9 to 0.12): one number is the largest size, several are the sizes themselves."""
    try:
        sizes = read_integers("cuda_graph_sizes", value)
        if not sizes:
            raise refuse("cuda_graph_sizes", value, "at least one size")
    except PlanError as refusal:
        reading.find("value-not-understood", refusal.text, "cuda_graph_sizes")
        return
    if len(sizes) == 1:
        reading.put("max_cudagraph_capture_size", sizes[0])
    else:
        reading.put("cudagraph_capture_sizes", list(sizes))


def _finish(reading: _Reading, words: Words) -> None:
    if reading.speculative:
        reading.put("speculative_config", reading.speculative)
    if not words.is_found and not reading.record:
        text = "No vLLM command was found; paste a line with vllm serve, the api_server module, docker run, or an args file."
        reading.find("command-not-found", text)
    elif "model_id" not in reading.record:
        reading.find("model-not-named", "The command names no model; the one chosen above stays.", "model", "info")
