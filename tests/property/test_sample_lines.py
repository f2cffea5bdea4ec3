"""A line is read as prometheus-client reads it, whichever way it is taken."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from live.sample_lines import parsed

TEXTS = st.text(alphabet='ab\\n"\n{}=, é#', max_size=8) | st.text(max_size=8)
HEADS = st.text(alphabet='a_="{}\\n, b1', max_size=24)


def by_client(line):
    try:
        (sample,) = [sample for family in text_string_to_metric_families(line) for sample in family.samples]
    except (ValueError, IndexError):
        return None
    return sample.name, tuple(sample.labels.items()), sample.value


@given(st.lists(TEXTS, min_size=1, max_size=3), st.floats(allow_nan=False))
def test_a_line_that_the_client_writes_is_read_back(texts, value):
    registry = CollectorRegistry()
    names = [f"l{place}" for place in range(len(texts))]
    Gauge("vllm:x", "", names, registry=registry).labels(*texts).set(value)
    line = generate_latest(registry).decode().split("\n")[2]

    series = parsed(line)

    assert (series.name, dict(series.labels), series.value) == ("vllm:x", dict(zip(names, texts, strict=True)), value)


@given(HEADS)
def test_odd_labels_are_read_as_the_client_reads_them_or_not_at_all(inside):
    line = f"vllm:x{{{inside}}} 3.0"

    series = parsed(line)

    assert series is None or (series.name, series.labels, series.value) == by_client(line)
