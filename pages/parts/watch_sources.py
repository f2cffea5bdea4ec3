"""What to watch: an address, an engine of this machine, a recording, an upload. Draws the choice, starts nothing unasked."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from live.kv_events import KvEventEndpoints
from live.probe_frames import DEFAULT_PROBE_ENDPOINT
from live.recorder import Recorder
from live.replay import FASTEST, SLOWEST, Replay
from live.scrape_address import ALLOW_SETTING
from pages.parts import watch_export, watch_fleet, watch_state, watch_words, words
from pages.parts.language import t
from pages.parts.said import said
from pages.parts.watch_state import key

_SAYINGS_SECONDS = 5.0
_FOLLOW_SECONDS = 1.0


def choose_engine() -> None:
    """The address, the button that looks on this machine, what that found, and what went wrong."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.text_input(
            t("Engine's address"),
            key=key("address"),
            help=t(
                "vLLM's API server on this machine, such as {address}. Its /metrics is read once a second; nothing is ever "
                "changed there. Another machine is read only where {setting} names it.",
                address=watch_words.inline_code(watch_state.FIRST_ADDRESS),
                setting=watch_words.inline_code(ALLOW_SETTING),
            ),
            width=340,
        )
        st.button(t("Watch"), key=key("watch"), icon=":material/play_arrow:", on_click=watch_state.watch_typed)
        st.button(
            t("Find local engines"),
            key=key("find"),
            icon=":material/search:",
            on_click=watch_state.find_engines,
            help=t("Asks each listening port of this machine once for /metrics. No other machine is asked."),
        )
        with st.popover(t("Probe and KV events"), icon=":material/grid_on:", key=key("beside_place")):
            _beside_fields()
        with st.popover(t("Prometheus"), icon=":material/lan:", key=key("fleet_place"), on_change="rerun"):
            watch_fleet.prometheus_server()
    problem = watch_state.problem()
    if problem:
        st.error(watch_words.sentence(said(problem)), icon=":material/error:")
    _found()
    _recorded_now()


def _beside_fields() -> None:
    """Where the engine at the address publishes more than its metrics."""
    st.markdown(
        t(
            "Where the engine publishes its blocks, if it does; recorded beside its metrics from the next **Watch** on. The same "
            "hosts may be read as for its address."
        )
    )
    st.text_input(
        t("Probe"),
        key=key("probe"),
        placeholder=DEFAULT_PROBE_ENDPOINT,
        help=t(
            "Real block tables, from a vLLM started with {flag}.",
            flag="`--scheduler-cls live.engine.probe.ProbeScheduler`",
        ),
    )
    st.text_input(
        t("KV events"),
        key=key("kv_events"),
        placeholder=KvEventEndpoints().endpoint,
        help=t("Cached blocks, from a vLLM started with {flag}.", flag="`--kv-events-config`"),
    )
    st.text_input(
        t("Replay of KV events"),
        key=key("kv_replay"),
        placeholder="tcp://127.0.0.1:5558",
        help=t("Its {field}: batches that were missed are asked for there.", field="`replay_endpoint`"),
    )


def _found() -> None:
    found = watch_state.found_engines()
    if found is None:
        return
    if not found:
        text = t(
            "No vLLM answers on this machine. Start one with {command}, then look again.", command="`vllm serve MODEL`"
        )
        st.info(text, icon=":material/search_off:")
    if len(found) < 2:
        return  # the only one is watched already
    for place, each in enumerate(found):
        models = words.plain(", ".join(each.models)) if each.models else t("model not told")
        st.button(
            t("Watch {address} · {models}", address=words.plain(each.address), models=models),
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
        st.caption(t("Being recorded:"))
        for place, each in enumerate(others):
            st.button(
                words.plain(watch_words.address_title(each.address)),
                key=key(f"recorded_{place}"),
                icon=":material/fiber_manual_record:",
                on_click=watch_state.show_engine,
                args=(each.address,),
            )


def newcomer() -> None:
    """What the page says while nothing is watched and nothing plays."""
    st.header(t("Nothing is watched yet"), anchor=False)
    _first_steps()
    packaged = watch_state.packaged_recordings()
    if packaged:
        st.button(
            t("Play the recorded session"),
            key=key("packaged"),
            icon=":material/smart_display:",
            on_click=watch_state.play,
            args=(packaged[0],),
            help=t("A session of a real engine that comes with KVScope."),
        )
    else:
        st.caption(t("No engine at hand? Open a recording below."))


def _first_steps() -> None:
    steps = (
        t(
            "Start an engine: {command}, or give the address of one that runs on this machine.",
            command="`vllm serve MODEL`",
        ),
        t(
            "Press **Watch**. Its KV usage, requests, preemptions and cache hits are read once a second and recorded, also "
            "while no browser is open."
        ),
        t("With a plan for the same model on the Plan page, each number stands beside its prediction."),
    )
    st.markdown("\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1)))


def replay_controls(replay: Replay) -> None:
    """Speed, place and end of the recording that plays, and that it is one."""
    name = watch_words.inline_code(replay.recording.path.name)
    address = watch_words.inline_code(watch_words.address_title(replay.address))
    if watch_state.is_first_play():
        text = t(
            "**A recorded session of a real engine plays until you choose one.** Nothing here is live. To see your own, start "
            "it with {command}, give its address above and press **Watch**; or start the demo engine.",
            command="`vllm serve MODEL`",
        )
        st.info(text, icon=":material/smart_display:")
    st.caption(t("Recording {name} of {address}", name=name, address=address))
    seconds = None if watch_state.value("is_paused") else _FOLLOW_SECONDS
    st.fragment(_time_controls, run_every=seconds, key=key("part_time"))(replay)


def _time_controls(replay: Replay) -> None:
    """Speed and place, which follows what plays."""
    if watch_state.replay() is not replay:
        st.rerun()  # it was closed here
    watch_state.follow_place(replay)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.slider(
            t("Speed (times)"),
            int(SLOWEST),
            int(FASTEST),
            key=key("speed"),
            on_change=watch_state.set_speed,
            width=180,
        )
        longest = watch_state.length_seconds(replay)
        st.slider(t("Jump to (s from the start)"), 0, longest, key=key("place"), on_change=watch_state.seek, width=260)
        if replay.is_paused:
            st.button(t("Play"), key=key("play"), icon=":material/play_arrow:", on_click=replay.play)
        else:
            st.button(t("Pause"), key=key("hold"), icon=":material/pause:", on_click=replay.pause)
        st.button(t("Close"), key=key("close"), icon=":material/close:", on_click=watch_state.close_replay)


@st.fragment(run_every=_SAYINGS_SECONDS)
def _sayings(address: str) -> None:
    for text in watch_state.monitor().sayings_beside(address):
        st.caption(f":material/info: {watch_words.sentence(said(text))}")


def recording_controls(recorder: Recorder) -> None:
    """Where the recording stands; its end, its files and a note on its time axis; what its publishers have to say."""
    _sayings(recorder.address)
    st.subheader(t("Recording"), anchor=False)
    st.markdown(t("It goes on while no browser is open, until you end it."))
    st.code(str(recorder.path), language=None, wrap_lines=True)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.text_input(
            t("Note for the time axis"),
            key=key("note"),
            placeholder=t("changed {flag}", flag="max_num_seqs"),
            max_chars=200,
            width=280,
        )
        st.button(t("Mark"), key=key("mark"), icon=":material/flag:", on_click=watch_state.mark, args=(recorder,))
        watch_export.downloads(recorder.recording)
        st.button(
            t("End recording"),
            key=key("end"),
            icon=":material/stop_circle:",
            on_click=watch_state.end_recording,
            args=(recorder.address,),
        )


def replay_download(replay: Replay) -> None:
    """The recording that plays, as files."""
    with st.container(horizontal=True, gap="small"):
        watch_export.downloads(replay.recording)


def ended() -> None:
    """Where the recording stands that was ended last."""
    path = watch_state.value("ended_path")
    if path is not None:
        text = t("The recording has ended; its file stays: {path}", path=words.plain(str(path)))
        st.success(text, icon=":material/check_circle:")


def open_recording() -> None:
    """The list of recordings to play, and the upload of one from elsewhere."""
    st.subheader(t("Open a recording"), anchor=False)
    paths = watch_state.recordings()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        watch_state.offer_recording(paths)
        st.selectbox(
            t("Recordings, the latest first"),
            paths,
            key=key("recording"),
            format_func=_recording_name,
            placeholder=t("None yet"),
            disabled=not paths,
            width=420,
        )
        st.button(
            t("Replay"),
            key=key("replay_chosen"),
            icon=":material/smart_display:",
            on_click=watch_state.play_chosen,
            disabled=not paths,
        )
    with st.expander(t("From a file"), icon=":material/upload_file:", key=key("from_file")):
        _upload()


def _upload() -> None:
    uploaded = st.file_uploader(
        t("A recording (.kvscope), or a CSV or Parquet file made of one"),
        type=["kvscope", "csv", "parquet"],
        key=key("upload"),
    )
    if uploaded is not None:
        st.button(
            t("Replay {name}", name=words.plain(uploaded.name)),
            key=key("play_upload"),
            icon=":material/smart_display:",
            on_click=watch_state.play_upload,
            args=(uploaded, uploaded.name),
        )


def _recording_name(path: Path) -> str:
    is_packaged = path in watch_state.packaged_recordings()
    return t("{name} (comes with KVScope)", name=path.stem) if is_packaged else path.stem


def engine_choice(names: list[str]) -> int:
    """The place of the chosen engine among `names`; no choice is drawn for one."""
    if len(names) < 2:
        return 0
    chosen = st.selectbox(
        t("Engine"), range(len(names)), key=key("engine"), format_func=lambda place: names[place], width=340
    )
    return min(chosen or 0, len(names) - 1)
