from __future__ import annotations

from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.forward_msg_cache import populate_hash_if_needed


def test_the_browser_keeps_no_message_that_a_ticking_place_could_miss() -> None:
    """By Streamlit's own rule for what a browser keeps, with the settings that `streamlit run app.py` reads."""
    message = ForwardMsg()
    message.delta.new_element.markdown.body = "x" * 1_000_000

    populate_hash_if_needed(message)

    assert message.hash
    assert not message.metadata.cacheable
