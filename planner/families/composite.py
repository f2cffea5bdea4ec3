"""How a multimodal model is put together: encoder towers, and the language model that another family builds.

A text config names the family; its layers are given the names they have inside the multimodal checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from planner.config_view import ConfigView
from planner.facts import PlanError
from planner.families import Built, FamilyInput, builder_for
from planner.inventory import EncoderFacts, Module, Part, Stage

# The class vLLM makes of a text config that names none (its model_type to a registry name).
_TEXT_CLASSES = {
    "cohere2": "Cohere2ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gemma3n_text": "Gemma3nForCausalLM",
    "gemma4_text": "Gemma4ForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "glm4v_text": "Glm4ForCausalLM",
    "glm4v_moe_text": "Glm4MoeForCausalLM",
    "granite": "GraniteForCausalLM",
    "internlm2": "InternLM2ForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "lfm2": "Lfm2ForCausalLM",
    "lfm2_moe": "Lfm2MoeForCausalLM",
    "llama": "LlamaForCausalLM",
    "llama4_text": "Llama4ForCausalLM",
    "ministral3": "MistralForCausalLM",
    "mistral": "MistralForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_5_omni_text": "Qwen2ForCausalLM",
    "qwen2_5_vl_text": "Qwen2ForCausalLM",
    "qwen2_vl": "Qwen2ForCausalLM",
    "qwen2_vl_text": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_omni_moe_text": "Qwen3MoeForCausalLM",
    "qwen3_vl_moe_text": "Qwen3MoeForCausalLM",
    "qwen3_vl_text": "Qwen3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
}
_TIES_BY_TEXT = ("Llava", "Qwen2VL", "Qwen2_5_VL")
# Since 0.33 the V2 runner builds encoders on the first pipeline stage only; before, every stage built them.
_FIRST_MINOR_WITH_TOWER_ON_FIRST_STAGE = 33
_FIRST_MINOR_ON_TRANSFORMERS_5 = 24


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tower:
    """An encoder with its projector: its name in the checkpoint, what it reads, and its sizes for the activation estimate."""

    prefix: str
    modules: tuple[Module, ...]
    modalities: tuple[str, ...] = ("image", "video")
    facts: EncoderFacts | None = None
    whole_unless_divides: int | None = None

    def part(self, vllm_minor: int) -> Part:
        """The tower as a part of the model."""
        stage: Stage = "first" if vllm_minor >= _FIRST_MINOR_WITH_TOWER_ON_FIRST_STAGE else "every"
        return Part(
            prefix=self.prefix,
            stage=stage,
            modules=self.modules,
            modalities=self.modalities,
            whole_unless_divides=self.whole_unless_divides,
        )


def text_class(text: ConfigView, default: str | None = None) -> str:
    """The registry name of the language model: the text config's own where it is known, else its model_type's."""
    named = [name for name in text.items("architectures") or [] if isinstance(name, str)]
    known = next((name for name in named if builder_for(name)), None)
    found = known or _TEXT_CLASSES.get(text.text("model_type") or "") or default
    if found is None or builder_for(found) is None:
        kind = named[0] if named else text.text("model_type")
        raise PlanError(
            f"{text.path}model_type",
            kind,
            f"config.json: the language model {kind!r} of this multimodal model is not known; its text part cannot be sized.",
        )
    return found


def text_model(given: FamilyInput, *, architecture: str | None = None, text: ConfigView | None = None) -> Built:
    """The language model of a multimodal config, named as a text model of its own would be."""
    view = _with_own_tie(given, given.text if text is None else text)
    name = architecture or text_class(view)
    builder = builder_for(name)
    if builder is not None and builder is builder_for(given.architecture):
        raise PlanError(
            "text_config", None, "config.json has no text_config; the language model cannot be sized without it."
        )
    if builder is None:
        raise PlanError(
            "architectures", name, f"The language model {name} is not known; its text part cannot be sized."
        )
    return builder(replace(given, architecture=name, text=view))


def _with_own_tie(given: FamilyInput, text: ConfigView) -> ConfigView:
    """The text config told whether the tables are tied: the root says so (vLLM config/vllm.py, with_hf_config), where it can.

    Classes from before that rule stored it in the text config, which still counts for them.
    """
    is_tied = text.flag("tie_word_embeddings", False) or _is_tied_by_class(given)
    if given.root.has("tie_word_embeddings"):
        from_root = given.root.flag("tie_word_embeddings", False)
        is_tied = from_root or (is_tied and given.architecture.startswith(_TIES_BY_TEXT))
    return ConfigView({**text.values, "tie_word_embeddings": is_tied}, text.path)


def _is_tied_by_class(given: FamilyInput) -> bool:
    """Whether the root's class ties the tables where config.json says nothing: Mistral3Config does in transformers 5."""
    is_silent = not given.root.has("tie_word_embeddings")
    is_mistral3 = given.root.text("model_type", "") == "mistral3"
    return is_silent and is_mistral3 and given.vllm_minor >= _FIRST_MINOR_ON_TRANSFORMERS_5


def renamed(built: Built, old: str, new: str) -> Built:
    """`built` with the checkpoint prefix `old` of its layers and parts replaced by `new`."""
    if old == new:
        return built
    layers = tuple(replace(layer, prefix=new + layer.prefix.removeprefix(old)) for layer in built.layers)
    return replace(built, layers=layers)


def assemble(given: FamilyInput, language: Built, towers: Iterable[Tower]) -> Built:
    """The whole model: the towers' parts before the language model's."""
    made = tuple(towers)
    facts = tuple(tower.facts for tower in made if tower.facts is not None)
    parts = tuple(tower.part(given.vllm_minor) for tower in made)
    return replace(language, parts=(*parts, *language.parts), is_multimodal=True, encoders=facts)


def part_of(given: FamilyInput, name: str) -> ConfigView:
    """The config section `name`, which this model cannot be sized without."""
    section = given.root.section(name)
    if section is None:
        raise PlanError(name, None, f"config.json has no {name}; the encoder cannot be sized without it.")
    return section
