from planner.parallel import layer_ranges


def test_layers_that_divide_are_dealt_evenly():
    assert [len(stage) for stage in layer_ranges(32, 4)] == [8, 8, 8, 8]


def test_remainder_goes_to_the_stages_before_the_last():
    assert [len(stage) for stage in layer_ranges(62, 4)] == [15, 16, 16, 15]


def test_stages_cover_every_layer_once():
    assert [layer for stage in layer_ranges(61, 8) for layer in stage] == list(range(61))
