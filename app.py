"""Starts and stops the process: the Streamlit application, its health route, the recorders, the demo engine, the collection."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator

import streamlit as st
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from live.engine.demo_session import end_forgotten_demos, stop_process_demo
from live.monitor import process_monitor, start_process_monitor, stop_process_monitor

COLLECTION_INTERVAL_SECONDS = 60.0

# The page may load nothing from elsewhere and stand in nobody's frame: the browser itself holds the page to its word.
# Streamlit needs inline styles, blobs for its workers and downloads, and compiles a few functions at run time.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; connect-src 'self'; "
        "object-src 'none'; base-uri 'self'; frame-ancestors 'self'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
}


class _SecurityHeaders:
    """Adds `_HEADERS` to every answer over HTTP."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


async def _collect_garbage() -> None:
    """Free cyclic garbage by the clock: `runner.postScriptGC` is off, because it would do so after every change."""
    while True:
        await asyncio.sleep(COLLECTION_INTERVAL_SECONDS)
        await asyncio.to_thread(gc.collect)


def _start() -> None:
    start_process_monitor()
    end_forgotten_demos(process_monitor())


def _stop() -> None:
    stop_process_demo()  # first: its recording ends with it
    stop_process_monitor()


@contextlib.asynccontextmanager
async def _lifespan(_app: st.App) -> AsyncIterator[None]:
    task = asyncio.create_task(_collect_garbage())
    await asyncio.to_thread(_start)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await asyncio.to_thread(_stop)


async def _healthz(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("ok")


app = st.App(
    "pages/_frame.py",
    lifespan=_lifespan,
    routes=[Route("/healthz", _healthz)],
    middleware=[Middleware(_SecurityHeaders)],
)
