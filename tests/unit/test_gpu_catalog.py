"""Cards: names people write, totals by kind, and sizes given by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.facts import PlanError
from planner.gpu_catalog import custom_gpu, find_gpu, gpu_names
from planner.units import GIB, MIB


def test_catalogue_holds_79_cards_each_found_by_its_own_name() -> None:
    assert len(gpu_names()) == 79
    assert [find_gpu(name).name for name in gpu_names()] == list(gpu_names())


@pytest.mark.parametrize("name", gpu_names())
def test_totals_are_ordered_and_below_the_drivers_total(name: str) -> None:
    gpu = find_gpu(name)

    assert 0 < gpu.total.low_bytes <= gpu.total.best_bytes <= gpu.total.high_bytes
    assert gpu.driver_total_bytes is None or gpu.total.best_bytes <= gpu.driver_total_bytes
    assert gpu.total.basis.note


@pytest.mark.parametrize("name", gpu_names())
def test_nvml_names_lead_back_to_a_card_of_that_name(name: str) -> None:
    for nvml_name in find_gpu(name).nvml_names:
        if nvml_name == "Orin":  # four Jetson boards share it
            continue
        assert nvml_name in find_gpu(nvml_name).nvml_names


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 80GB SXM"),
        ("h100", "H100 80GB SXM"),
        ("NVIDIA_H100_80GB_HBM3", "H100 80GB SXM"),
        ("H100 PCIe", "H100 80GB PCIe"),
        ("H100 NVL", "H100 NVL 94GB"),
        ("a100-80gb", "A100 80GB SXM"),
        ("NVIDIA A100 40GB", "A100 40GB SXM"),
        ("rtx4090", "GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 3090 (23.58 GiB)", "GeForce RTX 3090"),
        ("NVIDIA GB10 (DGX Spark, unified memory)", "DGX Spark (GB10)"),
        ("AMD Instinct MI300X (VF)", "Instinct MI300X"),
        ("Tesla T4", "T4"),
        ("Gaudi3", "Gaudi 3"),
    ],
)
def test_names_people_write_find_the_card(written: str, meant: str) -> None:
    assert find_gpu(written).name == meant


@pytest.mark.parametrize(
    "written", ["RTX 4090 48GB (modded)", "NVIDIA GeForce RTX 4070 (8 GB laptop)", "24 GB GPU", "", "TPU v5e-8"]
)
def test_a_card_that_is_not_there_is_refused_with_a_way_out(written: str) -> None:
    with pytest.raises(PlanError, match="--gpu-memory-gib") as refusal:
        find_gpu(written)

    assert refusal.value.field == "gpu"


def test_a_name_of_unlike_cards_lists_them() -> None:
    with pytest.raises(PlanError, match="Jetson Orin NX 16GB"):
        find_gpu("Orin")


def test_the_cuda_total_is_kept_apart_from_driver_and_marketed_size() -> None:
    gpu = find_gpu("H100 80GB SXM")

    assert (gpu.total.best_bytes, gpu.driver_total_bytes, gpu.marketed_gb) == (81091 * MIB, 81559 * MIB, 80)
    assert gpu.total.low_bytes == 81080 * MIB


def test_a_driver_total_alone_gives_a_derived_total_with_a_wide_band() -> None:
    total = find_gpu("GB200 (per GPU)").total

    assert total.basis.kind == "derived"
    assert "189471 MiB less the 729 MiB" in total.basis.note
    assert total.high_bytes - total.low_bytes > 500 * MIB


def test_windows_and_ecc_off_totals_stay_out_of_the_band() -> None:
    assert find_gpu("4090").total.high_bytes < 24564 * MIB
    assert find_gpu("A40").total.high_bytes < 46068 * MIB


def test_a_two_die_card_counts_one_die() -> None:
    assert find_gpu("MI250X").total.best_bytes < 64 * GIB


def test_a_custom_size_keeps_what_the_catalogue_knows_of_the_chip() -> None:
    gpu = custom_gpu(40 * GIB, "NVIDIA RTX 4090 48GB")

    assert gpu.total.best_bytes == gpu.total.high_bytes == 40 * GIB
    assert gpu.capability == (8, 9)


@pytest.mark.parametrize("memory_bytes", [0, -1, 2**60])
def test_a_nonsense_size_is_refused(memory_bytes: int) -> None:
    with pytest.raises(PlanError, match="gpu_memory_gib"):
        custom_gpu(memory_bytes)


@given(st.text(max_size=60))
def test_any_text_finds_a_card_or_is_refused(name: str) -> None:
    try:
        answer = find_gpu(name).name
    except PlanError as refusal:
        answer = refusal.text

    assert answer
