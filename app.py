"""Starts and stops the process: the Streamlit application, its health route and a timed garbage collection."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator

import streamlit as st
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

COLLECTION_INTERVAL_SECONDS = 60.0


async def _collect_garbage() -> None:
    """Free cyclic garbage by the clock: `runner.postScriptGC` is off, because it would do so after every change."""
    while True:
        await asyncio.sleep(COLLECTION_INTERVAL_SECONDS)
        await asyncio.to_thread(gc.collect)


@contextlib.asynccontextmanager
async def _lifespan(_app: st.App) -> AsyncIterator[None]:
    task = asyncio.create_task(_collect_garbage())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _healthz(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("ok")


app = st.App("pages/_frame.py", lifespan=_lifespan, routes=[Route("/healthz", _healthz)])
