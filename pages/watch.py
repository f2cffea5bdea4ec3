"""The Watch page: a running engine, or a recording of one, beside what the plan predicted."""

from __future__ import annotations

from pages.parts import watch_cards, watch_sources, watch_state, watch_view

watch_state.start_page()
watch_sources.choose_engine()
replay, recorder = watch_state.replay(), watch_state.shown_recorder()
if replay is not None:
    watch_sources.replay_controls(replay)
    watch_view.draw(replay, replay.recording.summary().interval_ms)
    watch_sources.replay_download(replay)
elif recorder is not None:
    watch_view.draw(recorder, recorder.recording.summary().interval_ms)
    watch_cards.cards()
    watch_sources.recording_controls(recorder)
else:
    watch_sources.ended()
    watch_sources.newcomer()
watch_sources.open_recording()
