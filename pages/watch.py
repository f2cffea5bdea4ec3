"""The Watch page: a running engine, or a recording of one, beside what the plan predicted."""

from __future__ import annotations

from pages.parts import (
    report_pages,
    watch_alerts,
    watch_cards,
    watch_compare,
    watch_demo,
    watch_demo_state,
    watch_log,
    watch_sources,
    watch_state,
    watch_view,
)

watch_state.start_page()
watch_demo_state.follow()
watch_sources.choose_engine()
replay, recorder = watch_state.replay(), watch_state.shown_recorder()
watch_demo.demo_engine(is_open=replay is None and recorder is None)
if replay is not None:
    watch_sources.replay_controls(replay)
    watch_alerts.banner(replay)
    watch_view.draw(replay, replay.recording.summary().interval_ms)
    report_pages.watch(replay)
    watch_alerts.panel(replay)
    watch_cards.cards(replay)
    watch_sources.replay_download(replay)
elif recorder is not None:
    watch_alerts.banner(recorder)
    watch_view.draw(recorder, recorder.recording.summary().interval_ms)
    report_pages.watch(recorder)
    watch_alerts.panel(recorder)
    watch_cards.cards(recorder)
    watch_log.startup_log(recorder)
    watch_sources.recording_controls(recorder)
else:
    watch_sources.ended()
    watch_sources.newcomer()
watch_sources.open_recording()
watch_compare.compare()
