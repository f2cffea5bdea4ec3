from planner.interning import share_equal_parts
from planner.inventory import Cache, Layer, Tensor


def layer(index: int, width: int) -> Layer:
    modules = (Tensor(name="norm", role="norm", shape=(width,)),)
    caches = (Cache(kind="full", num_kv_heads=8, head_size=width),)
    return Layer(index=index, prefix=f"layers.{index}", modules=modules, caches=caches)


def test_equal_parts_become_one_object():
    first, second, other = share_equal_parts((layer(0, 64), layer(1, 64), layer(2, 128)))

    assert first.modules is second.modules
    assert first.caches is second.caches
    assert first.modules is not other.modules


def test_layers_keep_their_place_and_parts():
    shared = share_equal_parts((layer(0, 64), layer(1, 64)))

    assert [(part.index, part.prefix) for part in shared] == [(0, "layers.0"), (1, "layers.1")]
    assert shared[1].modules == layer(1, 64).modules
