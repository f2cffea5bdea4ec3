"""Which of vLLM's KV planning rules hold in a release."""

from __future__ import annotations

from dataclasses import dataclass

from planner.versions import Era, Version, era_of


@dataclass(frozen=True, slots=True, kw_only=True)
class KvRules:
    """The planning rules of one release, read in the sources of 28 releases from 0.6.6 to 0.33.0."""

    is_v0: bool
    can_group: bool  # several KV groups of one pool exist (hybrid KV cache manager)
    can_scale_block_size: bool  # unlike pages are made equal by larger blocks
    can_pad_attention_page: bool  # ... or by padding, where the sizes do not divide
    can_pad_state_page: bool  # ... and states by padding
    widest_group_percent: int  # groups take the largest bucket's size when it is below this share of the smallest
    counts_null_block: bool  # the fit check leaves out the block that is never used
    needs_layer_by_layer: bool  # the fit check adds up layers instead of groups' blocks
    override_limits_fit: bool  # the fit check counts --num-gpu-blocks-override, not the memory there is
    packs_blocks: bool  # a block of layers with many page sizes (DeepSeek-V4) holds no padding between its pages
    tokens_by_concurrency: bool  # the token line is concurrency x max_model_len


def rules_of(version: Version) -> KvRules:
    """The rules of release `version`."""
    return KvRules(
        is_v0=era_of(version) is Era.V0,
        can_group=version >= (0, 9, 2),
        can_scale_block_size=version >= (0, 12, 0),
        can_pad_attention_page=version >= (0, 24, 0),
        can_pad_state_page=version >= (0, 26, 0),
        widest_group_percent=_widest_group_percent(version),
        counts_null_block=version >= (0, 29, 0),
        needs_layer_by_layer=version < (0, 14, 0),
        override_limits_fit=version >= (0, 21, 0),
        packs_blocks=version >= (0, 24, 0),
        tokens_by_concurrency=version >= (0, 21, 0),
    )


def _widest_group_percent(version: Version) -> int:
    if version < (0, 12, 0):
        return 0  # always the smallest bucket
    return 125 if version < (0, 18, 0) else 150
