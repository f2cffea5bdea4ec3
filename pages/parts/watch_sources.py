"""What to watch: an address, an engine found on this machine, a recording, an upload. Draws the choice, starts nothing unasked."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from live.recorder import Recorder
from live.recording import Recording
from live.recording_export import csv_text
from live.replay import FASTEST, SLOWEST, Replay
from pages.parts import watch_state, watch_words, words
from pages.parts.watch_state import key


def choose_engine() -> None:
    """The address, the button that looks on this machine, what that found, and what went wrong."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.text_input(
            "Engine's address",
            key=key("address"),
            help="vLLM's API server on this machine, such as http://localhost:8000. Its /metrics is read once a second; nothing is "
            "ever changed there.",
            width=340,
        )
        st.button("Watch", key=key("watch"), icon=":material/play_arrow:", on_click=watch_state.watch_typed)
        st.button(
            "Find local engines",
            key=key("find"),
            icon=":material/search:",
            on_click=watch_state.find_engines,
            help="Asks each listening port of this machine once for /metrics. No other machine is asked.",
        )
    problem = watch_state.problem()
    if problem:
        st.error(watch_words.sentence(problem), icon=":material/error:")
    _found()
    _recorded_now()


def _found() -> None:
    found = watch_state.found_engines()
    if found is None:
        return
    if not found:
        text = "No vLLM answers on this machine. Start one with: vllm serve MODEL, then look again."
        st.info(text, icon=":material/search_off:")
    for place, each in enumerate(found):
        models = ", ".join(each.models) or "model not told"
        st.button(
            words.plain(f"Watch {each.address} · {models}"),
            key=key(f"found_{place}"),
            icon=":material/dns:",
            on_click=watch_state.watch,
            args=(each.address,),
        )


def _recorded_now() -> None:
    recorders = watch_state.monitor().recorders()
    shown = None if watch_state.replay() is not None else watch_state.shown_recorder()
    others = [each for each in recorders if each is not shown]
    if not others:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption("Being recorded:")
        for place, each in enumerate(others):
            st.button(
                words.plain(each.address),
                key=key(f"recorded_{place}"),
                icon=":material/fiber_manual_record:",
                on_click=watch_state.show_engine,
                args=(each.address,),
            )


def newcomer() -> None:
    """What the page says while nothing is watched."""
    st.header("Nothing is watched yet", anchor=False)
    st.markdown(
        "1. Start an engine: `vllm serve MODEL`, or give the address of one that runs on this machine.\n"
        "2. Press **Watch**. Its KV usage, requests, preemptions and cache hits are read once a second and recorded, also while "
        "no browser is open.\n"
        "3. With a plan for the same model on the Plan page, each number stands beside its prediction."
    )
    packaged = watch_state.packaged_recordings()
    if packaged:
        st.markdown("No engine at hand? A recorded session of a real one plays here.")
        st.button(
            "Play the recorded session",
            key=key("packaged"),
            icon=":material/smart_display:",
            on_click=watch_state.play,
            args=(packaged[0],),
        )
    else:
        st.caption("No engine at hand? Open a recording below.")


def replay_controls(replay: Replay) -> None:
    """Speed, place and end of the recording that plays."""
    st.caption(watch_words.sentence(f"Recording {replay.recording.path.name} of {replay.address}"))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.slider(
            "Speed (times)",
            int(SLOWEST),
            int(FASTEST),
            key=key("speed"),
            on_change=watch_state.set_speed,
            width=180,
        )
        seconds = max(1, (replay.end_ms - replay.start_ms) // 1000)
        if watch_state.value("place") is None or watch_state.value("place") > seconds:
            watch_state.keep("place", 0)
        st.slider("Jump to (s from the start)", 0, seconds, key=key("place"), on_change=watch_state.seek, width=260)
        if replay.is_paused:
            st.button("Play", key=key("play"), icon=":material/play_arrow:", on_click=replay.play)
        else:
            st.button("Pause", key=key("hold"), icon=":material/pause:", on_click=replay.pause)
        st.button("Close", key=key("close"), icon=":material/close:", on_click=watch_state.close_replay)


def recording_controls(recorder: Recorder) -> None:
    """Where the recording stands; its end, its CSV and a note on its time axis."""
    st.subheader("Recording", anchor=False)
    st.markdown("It goes on while no browser is open, until you end it.")
    st.code(str(recorder.path), language=None, wrap_lines=True)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.text_input(
            "Note for the time axis", key=key("note"), placeholder="changed max_num_seqs", max_chars=200, width=280
        )
        st.button("Mark", key=key("mark"), icon=":material/flag:", on_click=watch_state.mark, args=(recorder,))
        _download(recorder.recording)
        st.button(
            "End recording",
            key=key("end"),
            icon=":material/stop_circle:",
            on_click=watch_state.end_recording,
            args=(recorder.address,),
        )


def replay_download(replay: Replay) -> None:
    """The recording that plays, as CSV."""
    _download(replay.recording)


def _download(recording: Recording) -> None:
    st.download_button(
        "Download CSV",
        data=lambda: csv_text(recording),
        file_name=f"{recording.path.stem}.csv",
        mime="text/csv",
        key=key("csv"),
        icon=":material/download:",
        on_click="ignore",
    )


def ended() -> None:
    """Where the recording stands that was ended last."""
    path = watch_state.value("ended_path")
    if path is not None:
        text = f"The recording has ended; its file stays: {path}"
        st.success(words.plain(text), icon=":material/check_circle:")


def open_recording() -> None:
    """The list of recordings to play, and the upload of one from elsewhere."""
    st.subheader("Open a recording", anchor=False)
    paths = watch_state.recordings()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        if watch_state.value("recording") not in paths:
            watch_state.keep("recording", paths[0] if paths else None)
        st.selectbox(
            "Recordings, the latest first",
            paths,
            key=key("recording"),
            format_func=_recording_name,
            placeholder="None yet",
            disabled=not paths,
            width=420,
        )
        st.button(
            "Replay",
            key=key("replay_chosen"),
            icon=":material/smart_display:",
            on_click=watch_state.play_chosen,
            disabled=not paths,
        )
    with st.expander("From a file", icon=":material/upload_file:", key=key("from_file")):
        _upload()


def _upload() -> None:
    uploaded = st.file_uploader(
        "A recording (.kvscope), or a CSV made of one", type=["kvscope", "csv"], key=key("upload")
    )
    if uploaded is not None:
        st.button(
            words.plain(f"Replay {uploaded.name}"),
            key=key("play_upload"),
            icon=":material/smart_display:",
            on_click=watch_state.play_upload,
            args=(uploaded, uploaded.name),
        )


def _recording_name(path: Path) -> str:
    is_packaged = path in watch_state.packaged_recordings()
    return f"{path.stem} (comes with KVScope)" if is_packaged else path.stem


def engine_choice(names: list[str]) -> int:
    """The place of the chosen engine among `names`; no choice is drawn for one."""
    if len(names) < 2:
        return 0
    chosen = st.selectbox(
        "Engine", range(len(names)), key=key("engine"), format_func=lambda place: names[place], width=340
    )
    return min(chosen or 0, len(names) - 1)
