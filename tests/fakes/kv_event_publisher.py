"""A publisher of KV events over real ZMQ sockets on loopback, as vLLM's: PUB, and a ROUTER that replays its buffer."""

import threading
import time
from collections import deque
from typing import Self

import msgspec
import zmq

END = (-1).to_bytes(8, "big", signed=True)


class Publisher:
    """`has_topic_in_replay` is the newer form of a replayed message."""

    def __init__(self, *, topic: str = "", buffer_steps: int = 100, has_topic_in_replay: bool = True) -> None:
        self._topic, self._has_topic = topic.encode(), has_topic_in_replay
        self._context = zmq.Context()
        self._pub = self._context.socket(zmq.PUB)
        self.port = self._pub.bind_to_random_port("tcp://127.0.0.1")
        self._router = self._context.socket(zmq.ROUTER)
        self.replay_port = self._router.bind_to_random_port("tcp://127.0.0.1")
        self._buffer: deque[tuple[int, bytes]] = deque(maxlen=buffer_steps)
        self._running = True
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.sequence = 0
        self.num_requests = 0

    def __enter__(self) -> Self:
        time.sleep(0.05)
        return self

    def __exit__(self, *_exception: object) -> None:
        self._running = False
        self._thread.join(2)
        self._pub.close(linger=0)
        self._router.close(linger=0)
        self._context.term()

    @property
    def endpoint(self) -> str:
        return f"tcp://*:{self.port}"

    @property
    def replay_endpoint(self) -> str:
        return f"tcp://127.0.0.1:{self.replay_port}"

    def publish(self, events: list, *, at: float | None = None, is_lost: bool = False, rank: int | None = 0) -> None:
        """Sends a batch, or only keeps it for the replay."""
        batch = [float(self.sequence + 1) if at is None else at, events, *([] if rank is None else [rank])]
        payload = msgspec.msgpack.encode(batch)
        self._buffer.append((self.sequence, payload))
        if not is_lost:
            self.send(self.sequence.to_bytes(8, "big"), payload)
        self.sequence += 1

    def send(self, number: bytes, payload: bytes) -> None:
        self._pub.send_multipart((self._topic, number, payload))

    def _serve(self) -> None:
        while self._running:
            if not self._router.poll(20):
                continue
            client, _, number = self._router.recv_multipart()
            self.num_requests += 1
            first = int.from_bytes(number, "big")
            topic = (self._topic,) if self._has_topic else ()
            for sequence, payload in tuple(self._buffer):
                if sequence >= first:
                    self._router.send_multipart((client, b"", *topic, sequence.to_bytes(8, "big"), payload))
            self._router.send_multipart((client, b"", *((b"",) if self._has_topic else ()), END, b""))


def stored_map(hashes: list, parent: object = None, **more: object) -> dict:
    """The form of newer versions: defaults left out."""
    fields = {
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": [7] * 16 * len(hashes),
        "block_size": 16,
    }
    return {"type": "BlockStored", **fields, "lora_id": None, "medium": "GPU", "lora_name": None, **more}


def removed_map(hashes: list, **more: object) -> dict:
    return {"type": "BlockRemoved", "block_hashes": hashes, "medium": "GPU", **more}


def stored_array(hashes: list, parent: object = None, *more: object) -> list:
    """The form of older versions: 0.11's fields, then what `more` adds."""
    return ["BlockStored", hashes, parent, [7] * 16 * len(hashes), 16, None, "GPU", *more]
