"""Who may call the server: the token, names of the host, the origin of requests, files of one user."""

from __future__ import annotations

import hmac
import os
import re
import secrets
import socket
import stat
from collections import deque
from contextlib import suppress
from html import escape
from pathlib import Path
from time import monotonic
from urllib.parse import parse_qs, quote

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tracewarehouse.errors import TwError

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_ANY = ("0.0.0.0", "::")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin-allow-popups",  # a page opens Perfetto and sends it a trace
    "Cross-Origin-Resource-Policy": "same-origin",
}
MOST_WRONG = 10  # tokens per second
_LEAST_CHARACTERS = 20  # of a token in a file
_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:]+)\]|(?P<name>[a-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?", re.I)
_RETRY = "retry"


class Guard:
    """The application for those who know the token, and for pages of this server alone.

    The token is in the first URL, which is redirected to one without it, or in `Authorization: Bearer`.
    Then a cookie counts, whose value is that of this process.
    """

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str]) -> None:
        self.app, self.token, self.hosts = app, token, hosts
        self.cookie = secrets.token_urlsafe(32)
        self._wrong: deque[float] = deque(maxlen=MOST_WRONG)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or refuses it before anything is read."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if scope["type"] == "http":
            refused = self._refusal(Request(scope))
            await (refused or self.app)(scope, receive, send_with_headers)
        elif scope["type"] == "lifespan":
            await self.app(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        """Why a request is not answered, or the redirection of the first URL."""
        headers, hosts = request.headers, request.headers.getlist("host")
        host_match = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if host_match is None or (host_match["v6"] or host_match["name"]).lower() not in self.hosts:
            return _refused(403, "this name of the host is not one of the server")
        if request.method not in ("GET", "HEAD", "POST"):
            return _refused(405, "only GET and POST are supported")
        if headers.get("origin", f"http://{hosts[0]}").lower() != f"http://{hosts[0]}".lower():
            return _refused(403, "requests of other pages are refused")
        is_visit = request.method == "GET" and headers.get("sec-fetch-mode", "navigate") == "navigate"
        is_foreign = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        if is_foreign and not (is_visit and headers.get("sec-fetch-dest", "document") == "document"):
            return _refused(403, "requests of other pages are refused")
        cookie = f"tw-{host_match['port'] or 80}"
        if is_visit and request.url.path == "/" and "token" in request.query_params:
            return self._wrong_token(request.query_params["token"]) or self._welcome(cookie)
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._wrong_token(bearer)
        if not _same(request.cookies.get(cookie, ""), self.cookie):
            return _unknown(request, is_foreign)
        if request.method == "POST" and "origin" not in headers:
            return _refused(403, "a POST with the cookie needs an Origin")
        return None

    def _wrong_token(self, token: str) -> Response | None:
        now = monotonic()
        if len(self._wrong) == MOST_WRONG and now - self._wrong[0] < 1:
            return _refused(429, "too many wrong tokens; try again in a second")
        if _same(token, self.token):
            return None
        self._wrong.append(now)
        return _refused(401, "the token is wrong; tw serve prints the right one")

    def _welcome(self, cookie: str) -> Response:
        response = RedirectResponse("/", 303)
        response.set_cookie(cookie, self.cookie, httponly=True, samesite="strict")
        return response


def _same(sent: str, expected: str) -> bool:
    return hmac.compare_digest(sent.encode("utf-8", "replace"), expected.encode())


def _refused(status: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status)


def _unknown(request: Request, is_foreign: bool) -> Response:
    """No cookie: a visit from another page comes without it, so the page visits itself once."""
    text = "Open the address that tw serve printed, or send its token: Authorization: Bearer TOKEN."
    if not is_foreign or _RETRY in parse_qs(request.url.query, keep_blank_values=True):
        return _refused(401, text)
    query = request.url.include_query_params(**{_RETRY: ""}).query
    path = escape(f"/{quote(request.url.path.lstrip('/'))}?{query}")
    page = f'<!DOCTYPE html><meta http-equiv="refresh" content="0; url={path}"><p>{text}</p>'
    return Response(page, 401, media_type="text/html")


def token_of(path: Path) -> str:
    """The token in a file that only this user can read; a file that does not exist gets a new one."""
    with suppress(FileExistsError):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"{secrets.token_urlsafe(32)}\n")
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), encoding="utf-8") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise TwError(f"{path}: others may read or change it", f"chmod 600 {path}")
        token = file.read(10_000).strip()
    if len(token) < _LEAST_CHARACTERS or not token.isprintable() or " " in token:
        raise TwError(f"{path}: no token", f"delete it, or write {_LEAST_CHARACTERS} characters or more")
    return token


def unix_socket(path: Path) -> socket.socket:
    """A socket that only this user can open; one that a killed server left is replaced."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as old_socket:
        if stat.S_ISSOCK(path.lstat().st_mode):
            try:
                old_socket.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
    old_mask, listening = os.umask(0o177), socket.socket(socket.AF_UNIX)
    try:
        listening.bind(str(path))
    except OSError as error:
        listening.close()
        hint = "use another path of at most 100 characters, in a folder of this user"
        raise TwError(f"{path}: {error.strerror or error}", hint) from error
    finally:
        os.umask(old_mask)
    return listening


def tcp_socket(host: str, port: int) -> tuple[socket.socket, str]:
    """A socket at a port of a host, 0 is a free one, and its address."""
    try:
        family, _, _, _, socket_address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(socket_address, family=family)
    except OSError as error:
        hint = "--port 0 takes a free one" if port else "check the name"
        raise TwError(f"cannot listen on {host}:{port}: {error.strerror or error}", hint) from error
    name = socket.gethostname() if host in _ANY else f"[{host}]" if ":" in host else host
    return listening, f"http://{name}:{listening.getsockname()[1]}"


def names_of(host: str | None) -> frozenset[str]:
    """The names that a server at this address has; those of the machine, if it is any address."""
    own = {socket.gethostname(), socket.getfqdn()} if host in _ANY else set()
    return LOOPBACK | {name.lower() for name in (host or "localhost", *own)}
