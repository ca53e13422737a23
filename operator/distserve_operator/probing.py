"""`/healthz` and `/readyz` of the operator itself."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

Check = Callable[[], str | None]
"""None when all is well, else what is wrong."""


async def serve_probes(port: int, checks: Mapping[str, Check]) -> None:
    """Answer 200 or 503 on each path of `checks`, on all addresses, until cancelled."""
    application = web.Application()
    application.add_routes([web.get(path, _handler(check)) for path, check in checks.items()])
    runner = web.AppRunner(application, handle_signals=False, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=port).start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def _handler(check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(_: web.Request) -> web.Response:
        problem = check()
        return web.Response(text=problem or "ok", status=200 if problem is None else 503)

    return handle
