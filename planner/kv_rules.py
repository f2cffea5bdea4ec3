"""Which of vLLM's KV planning rules hold in a release, and the releases between which each changed."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from planner.versions import Era, Version, era_of


@dataclass(frozen=True, slots=True, kw_only=True)
class KvRules:
    """The planning rules of one release.

    Read in the sources of 0.6.6, 0.8.5, 0.11.0, 0.14.0, 0.19.0, 0.23.0, 0.27.1, 0.31.0 and 0.33.0; where a rule differs
    between two of them, the comment in `rules_of` says between which.
    """

    is_v0: bool
    can_group: bool  # several KV groups of one pool exist (hybrid KV cache manager)
    can_scale_block_size: bool  # unlike pages are made equal by larger blocks
    can_pad_attention_page: bool  # ... or by padding, where the sizes do not divide
    widest_group_ratio: Fraction  # groups take the largest bucket's size when it is below this times the smallest
    counts_null_block: bool  # the fit check leaves out the block that is never used
    needs_layer_by_layer: bool  # the fit check adds up layers instead of groups' blocks
    override_limits_fit: bool  # the fit check counts --num-gpu-blocks-override, not the memory there is
    counts_in_flight: bool  # windows hold every batch in flight, not one
    tokens_by_concurrency: bool  # the token line is concurrency x max_model_len
    has_packed_blocks: bool  # layers of unlike pages side by side in a block (block-outermost layout)


def rules_of(version: Version) -> KvRules:
    """The rules of release `version`."""
    era = era_of(version)
    return KvRules(
        is_v0=era is Era.V0,
        can_group=version >= (0, 10, 0),
        can_scale_block_size=version >= (0, 12, 0),  # not in 0.11.0, in 0.14.0
        can_pad_attention_page=version >= (0, 24, 0),  # not in 0.23.0, in 0.27.1
        widest_group_ratio=_widest_group_ratio(version),
        counts_null_block=version >= (0, 28, 0),  # not in 0.27.1, in 0.31.0
        needs_layer_by_layer=version < (0, 12, 0),  # in 0.11.0, not in 0.14.0
        override_limits_fit=version >= (0, 21, 0),  # not in 0.19.0, in 0.23.0
        counts_in_flight=version >= (0, 24, 0),  # not in 0.23.0, in 0.27.1
        tokens_by_concurrency=era >= Era.V021_026,  # not in 0.19.0, in 0.23.0; logs of 0.21 show it
        has_packed_blocks=version >= (0, 28, 0),  # 0.27.1 has a rule for DeepSeek-V4 alone
    )


def _widest_group_ratio(version: Version) -> Fraction:
    if version < (0, 12, 0):
        return Fraction(0)  # 0.11.0: always the smallest bucket
    if version < (0, 16, 0):
        return Fraction(5, 4)  # 0.14.0
    return Fraction(3, 2)  # 0.19.0 and later
