"""Plays vLLM's server for the demo engine: /health after a moment, /metrics, completions. Run by `stand_in_environment`'s Python."""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

START_SECONDS = 0.6
FAILS = "--fails"  # among the words: end with a last line at once
DIES = "--dies"  # among the words: end as soon as something is asked

METRICS = """# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="kvscope-demo"} 0.25
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="kvscope-demo"} 3.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{engine="0",block_size="32",num_gpu_blocks="256",kv_cache_size_tokens="8192",kv_cache_max_concurrency="4.0"} 1.0
"""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        texts = {"/health": "", "/metrics": METRICS, "/version": '{"version": "0.32.0"}'}
        self.send(texts.get(self.path, "{}"))

    def do_POST(self) -> None:
        if DIES in sys.argv:
            os._exit(5)
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send(json.dumps({"usage": {"completion_tokens": asked["max_tokens"]}}))

    def send(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        return None


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


def stand_in_environment(folder: Path, *extra: str) -> Path:
    """A folder that passes for the engine environment; `extra` words reach this script before vLLM's own."""
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    words = " ".join([sys.executable, __file__, *extra])
    python.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    (folder / ".ready").write_text("", encoding="utf-8")
    return folder


def main(words: list[str]) -> int:
    if FAILS in words:
        sys.stderr.write("ValueError: this engine was told to fail\n")
        return 3
    time.sleep(START_SECONDS)
    port = int(words[words.index("--port") + 1])
    Server(("127.0.0.1", port), Handler).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
