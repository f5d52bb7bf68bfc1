"""Keeps web pages away from an API that asks for no key: only this machine's own names reach it.

A page of any site may resolve its own name to 127.0.0.1 (DNS rebinding) and would then be of the
API's origin; the Host header still bears the page's name.
"""

import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from kafila.api.errors import ApiError

_OWN = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)


class OwnHosts:
    """Middleware that refuses requests to any other host, whatever the port."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and not _OWN.fullmatch(Headers(scope=scope).get("host", "")):
            app = ApiError(
                403, "this API answers to 127.0.0.1 and localhost only", code="unknown_host"
            ).response()
        await app(scope, receive, send)
