"""Limits held to samples: hold time, hysteresis, counters that fall, metrics that are absent, and the log that is left."""

from __future__ import annotations

import pytest

from live.alert_log import alert_log, changed_rules, shown_number
from live.alert_rules import ALERT_MEANINGS, AlertRule, checked_rule, first_rules, rules_from_text, rules_to_text
from live.alerts import AlertWatch
from live.recording import Mark
from live.samples import EngineIdentity, EngineSample, EngineSnapshot, HistogramSample
from planner.facts import PlanError

LLAMA = EngineIdentity(model_name="llama", engine="0")


def at(second: float, *, identity: EngineIdentity = LLAMA, queue: tuple[float, float] | None = None, **numbers: float):
    histograms = ()
    if queue is not None:
        name = "vllm:request_queue_time_seconds"
        histograms = (HistogramSample(name=name, upper_bounds=(), counts=(), sum=queue[0], count=queue[1]),)
    time_unix_ns = int(second * 1e9)
    sample = EngineSample(time_unix_ns=time_unix_ns, identity=identity, histograms=histograms, **numbers)
    return EngineSnapshot(time_unix_ns=time_unix_ns, source="http://x", engines=(sample,))


def watching(kind: str, limit: float, hold_seconds: float = 0.0, **more: object) -> AlertWatch:
    return AlertWatch([AlertRule(kind=kind, limit=limit, hold_seconds=hold_seconds)], **more)


def told(watch: AlertWatch, *snapshots: EngineSnapshot) -> list[tuple[str, int]]:
    """Kind and second of each mark."""
    return [(mark.kind, mark.time_ms // 1000) for snapshot in snapshots for mark in watch.take(snapshot)]


def usages(*fractions: float, start: int = 0) -> list[EngineSnapshot]:
    return [at(start + second, kv_usage_fraction=each) for second, each in enumerate(fractions)]


def test_an_alert_begins_only_after_its_time():
    watch = watching("kv_usage", 95, hold_seconds=3)

    assert told(watch, *usages(0.96, 0.96, 0.96, 0.96, 0.96)) == [("alert", 3)]


def test_one_dip_begins_the_time_again():
    watch = watching("kv_usage", 95, hold_seconds=3)

    assert told(watch, *usages(0.96, 0.96, 0.5, 0.96, 0.96, 0.96, 0.96)) == [("alert", 6)]


def test_the_limit_itself_is_over_it():
    assert told(watching("kv_usage", 95), at(0, kv_usage_fraction=0.95)) == [("alert", 0)]


def test_a_value_that_flickers_around_the_limit_is_one_alert():
    watch = watching("kv_usage", 95)

    assert told(watch, *usages(*[0.96, 0.94] * 60)) == [("alert", 0)]


def test_it_is_over_well_below_the_limit_for_ten_seconds():
    watch = watching("kv_usage", 95)

    assert told(watch, *usages(0.96, *[0.5] * 20)) == [("alert", 0), ("alert_over", 11)]


def test_the_sentences_say_whose_what_and_how_long():
    watch = watching("kv_usage", 95, hold_seconds=2)

    texts = [mark.text for each in usages(0.97, 0.97, 0.973, *[0.5] * 20) for mark in watch.take(each)]

    assert texts == [
        "KV usage of llama, engine 0: 97.3 % for 2 s, at or above the limit of 95.",
        "KV usage of llama, engine 0: over after 11 s; 50 %.",
    ]


def test_preemptions_are_counted_over_the_last_minute():
    watch = watching("preemptions", 5)
    rising = [at(10 * step, num_preemptions=100 + step) for step in range(30)]
    burst = at(300, num_preemptions=140)

    assert told(watch, *rising) == [("alert", 50)]
    assert watch.standings[0].value == 6
    assert told(watch, burst) == []


def test_preemptions_before_the_first_look_do_not_count():
    assert told(watching("preemptions", 5), at(0, num_preemptions=1000), at(1, num_preemptions=1001)) == []


def test_a_counter_that_falls_counts_from_zero():
    watch = watching("preemptions", 5)

    assert told(watch, at(0, num_preemptions=90), at(1, num_preemptions=4), at(2, num_preemptions=6)) == [("alert", 2)]


def test_what_grew_in_an_hour_of_silence_is_no_minute():
    watch = watching("preemptions", 5)

    assert told(watch, at(0, num_preemptions=0), at(3600, num_preemptions=50), at(3601, num_preemptions=50)) == []


def test_a_counter_that_appears_while_we_look_begins_at_zero():
    watch = watching("offload_failures", 1)

    assert told(watch, at(0, kv_usage_fraction=0.1), at(1, offload_allocation_failures=1.0)) == [("alert", 1)]


def test_a_counter_that_comes_back_is_not_counted_again():
    watch = watching("offload_failures", 1)
    seen = [at(0, offload_allocation_failures=9.0), at(1), at(2, offload_allocation_failures=9.0)]

    assert told(watch, *seen, at(3, offload_allocation_failures=9.0)) == []


def test_queue_time_is_the_mean_of_those_who_left_the_queue():
    watch = watching("queue_time", 5)

    marks = told(watch, at(0, queue=(100.0, 50.0)), at(1, queue=(104.0, 51.0)), at(2, queue=(112.0, 52.0)))

    assert marks == [("alert", 2)]
    assert watch.standings[0].value == pytest.approx(6.0)


def test_an_empty_queue_ends_a_queue_alert_though_nobody_leaves_it():
    watch = watching("queue_time", 5)
    told(watch, at(0, queue=(0.0, 0.0)), at(1, queue=(9.0, 1.0)))

    later = [at(second, queue=(9.0, 1.0), num_requests_waiting=0) for second in range(55, 90)]

    assert told(watch, *later) == [("alert_over", 71)]


def test_a_stuck_queue_keeps_its_alert():
    watch = watching("queue_time", 5)
    told(watch, at(0, queue=(0.0, 0.0)), at(1, queue=(9.0, 1.0)))

    assert told(watch, *[at(second, queue=(9.0, 1.0), num_requests_waiting=4) for second in range(2, 200)]) == []
    assert watch.standings[0].state == "alert"


@pytest.mark.parametrize("kind", [meaning.kind for meaning in ALERT_MEANINGS])
def test_what_is_not_exported_cannot_alert_and_says_so(kind):
    watch = watching(kind, 1)

    assert told(watch, at(0), at(1), at(2)) == []
    assert [each.state for each in watch.standings] == ["not_exported"]


def test_a_metric_that_vanishes_ends_its_alert():
    watch = watching("kv_usage", 95)

    assert told(watch, *usages(0.99), at(1)) == [("alert", 0), ("alert_over", 1)]


def test_an_engine_that_is_gone_ends_its_alerts():
    watch = watching("kv_usage", 95)
    other = EngineIdentity(model_name="qwen", engine="0")

    assert told(watch, *usages(0.99), at(1, identity=other, kv_usage_fraction=0.1)) == [("alert", 0), ("alert_over", 1)]


def test_a_silence_is_no_time_above_the_limit():
    watch = watching("kv_usage", 95, hold_seconds=20)

    assert told(watch, at(0, kv_usage_fraction=0.99), at(100, kv_usage_fraction=0.99)) == []


def test_a_slow_recorder_has_no_silences():
    watch = watching("kv_usage", 95, hold_seconds=60, interval_seconds=60)

    assert told(watch, at(0, kv_usage_fraction=0.99), at(60, kv_usage_fraction=0.99)) == [("alert", 60)]


def test_each_engine_has_its_own_alert():
    watch = watching("kv_usage", 95)
    both = EngineSnapshot(
        time_unix_ns=0,
        source="x",
        engines=tuple(
            EngineSample(
                time_unix_ns=0, identity=EngineIdentity(model_name="m", engine=str(number)), kv_usage_fraction=usage
            )
            for number, usage in enumerate((0.99, 0.10))
        ),
    )

    assert [mark.text.partition(":")[0] for mark in watch.take(both)] == ["KV usage of m, engine 0"]
    assert [each.state for each in watch.standings] == ["alert", "below"]


def test_who_goes_on_goes_on_with_the_alerts_that_last():
    first = watching("kv_usage", 95)
    log = alert_log([mark for each in usages(0.99) for mark in first.take(each)])
    second = watching("kv_usage", 95, lasting=log)

    assert told(second, *usages(0.99, *[0.5] * 15, start=100)) == [("alert_over", 111)]


def test_a_limit_that_is_switched_off_ends_its_alert():
    watch = watching("kv_usage", 95)
    told(watch, *usages(0.99))
    watch.rules = (AlertRule(kind="kv_usage", limit=95, hold_seconds=0, is_on=False),)

    assert told(watch, at(1, kv_usage_fraction=0.99)) == [("alert_over", 1)]
    assert watch.standings[0].state == "off"


# -- the log ------------------------------------------------------------------------------------------------------------


def test_the_log_pairs_begin_and_end_the_latest_first():
    marks = [
        Mark(time_ms=1, kind="alert", text="A: one."),
        Mark(time_ms=2, kind="note", text="A: no alert"),
        Mark(time_ms=3, kind="alert", text="B: two."),
        Mark(time_ms=4, kind="alert_over", text="A: over after 3 s; fine."),
        Mark(time_ms=5, kind="alert_over", text="C: never begun."),
    ]

    assert [(each.subject, each.start_ms, each.end_ms) for each in alert_log(marks)] == [("B", 3, None), ("A", 1, 4)]


def test_a_second_begin_ends_the_first():
    marks = [Mark(time_ms=time_ms, kind="alert", text="A: again.") for time_ms in (1, 2)]

    assert [(each.start_ms, each.end_ms) for each in alert_log(marks)] == [(2, None), (1, 2)]


# -- the limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "limit", "hold_seconds", "said"),
    [
        ("kv_usage", 0, 30, "KV usage can have a limit of 1 to 100 %, not 0."),
        ("kv_usage", float("nan"), 30, "not nan"),
        ("waiting", 1e9, 30, "1 to 1,000,000 requests"),
        ("preemptions", 5, -1, "Preemptions can be held for 0 to 3,600 s before it is an alert, not -1 s."),
        ("queue_time", 5, float("inf"), "not inf s"),
    ],
)
def test_a_limit_that_cannot_be_is_a_sentence(kind, limit, hold_seconds, said):
    with pytest.raises(PlanError) as fault:
        checked_rule(AlertRule(kind=kind, limit=limit, hold_seconds=hold_seconds))

    assert said in fault.value.text
    assert fault.value.field == kind


def test_limits_come_back_as_they_were_kept():
    rules = (AlertRule(kind="waiting", limit=3, hold_seconds=1, is_on=False), *first_rules()[:2])

    again = rules_from_text(rules_to_text(rules))

    assert {rule.kind for rule in again} == {meaning.kind for meaning in ALERT_MEANINGS}
    assert rules[0] in again


@pytest.mark.parametrize(
    "text", [None, "", "{", "[1]", '[{"kind":"kv_usage","limit":9e9,"hold_seconds":1}]', "[" * 9999]
)
def test_limits_that_cannot_be_read_are_the_first_ones(text):
    assert rules_from_text(text) == first_rules()


def test_what_changed_is_one_sentence():
    later = (AlertRule(kind="kv_usage", limit=80, hold_seconds=5), *first_rules()[1:])

    assert changed_rules(first_rules(), later) == "Limits changed: KV usage at 80 % for 5 s."
    assert changed_rules(later, later) == ""


@pytest.mark.parametrize(
    ("value", "shown"), [(3.43e-05, "0"), (0.0123, "0.0123"), (7.0, "7"), (12.345, "12.3"), (1234.5, "1,234")]
)
def test_a_value_is_shown_as_a_person_reads_it(value: float, shown: str) -> None:
    assert shown_number(value) == shown
