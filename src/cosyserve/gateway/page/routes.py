"""Routes: the page's own files, read once and kept in memory."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from fastapi import APIRouter, Request, Response

from cosyserve.gateway.errors import Refusal

KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "media-src blob:",  # a recording is heard before it is sent
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Cache-Control": "no-cache",  # names carry no version: kept, and asked for again each time
    "Content-Security-Policy": CONTENT_POLICY,
    "Permissions-Policy": "microphone=(self)",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class File(NamedTuple):
    content: bytes
    headers: dict[str, str]  # its tag is of the content, so all hosts of a service agree on it


def routes() -> APIRouter:
    router = APIRouter(include_in_schema=False)
    known = dict(_read(files("cosyserve.gateway.page").joinpath("files")))

    @router.api_route("/", methods=["GET", "HEAD"])
    async def page(request: Request) -> Response:
        return _answer(known["index.html"], request)

    @router.api_route("/page/{name:path}", methods=["GET", "HEAD"])
    async def file(name: str, request: Request) -> Response:
        if name not in known:
            raise Refusal(404, f"the page has no file '{name:.80}'", "not_found")
        return _answer(known[name], request)

    return router


def _read(folder: Traversable, prefix: str = "") -> list[tuple[str, File]]:
    """Every file of the page below a folder, by its path."""
    found = []
    for entry in folder.iterdir():
        name = prefix + entry.name
        if entry.is_dir():
            found += _read(entry, f"{name}/")
            continue
        kind = KINDS.get(name.rpartition(".")[2])
        if kind is None:  # an editor's or a file system's own
            continue
        content = entry.read_bytes()
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        found.append((name, File(content, {"Content-Type": kind, "ETag": tag} | HEADERS)))
    return found


def _answer(file: File, request: Request) -> Response:
    asked = request.headers.get("if-none-match", "")
    if file.headers["ETag"] in (tag.strip().removeprefix("W/") for tag in asked.split(",")):
        return Response(status_code=304, headers=file.headers)
    return Response(file.content, headers=file.headers)
