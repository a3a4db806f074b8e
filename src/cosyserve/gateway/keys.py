"""API keys: clients send one as `Authorization: Bearer KEY`, or as their own service wants it.

Keys are compared by their hashes in constant time, all of them, so that an answer's time tells
nothing of any key. A page in a browser can't set headers of a WebSocket: it sends its key as a
subprotocol, which stays out of the logs and histories that keep URLs.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Sequence
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from cosyserve.gateway.errors import Refusal
from cosyserve.gateway.key_file import KeyFile

OPEN_TO_ALL = frozenset({"/", "/health", "/ready", "/docs", "/openapi.json"})
FILES_OF_THE_PAGE = "/page/"  # open, too: the page asks for the key
KEY_SUBPROTOCOL = "cosyserve.key."  # and the key in base64url, for a subprotocol has few characters
KEY_HEADERS = ("x-api-key", "xi-api-key")  # of Cartesia's and ElevenLabs' clients
KEY_SCHEMES = frozenset({"bearer", "token"})  # the latter is Deepgram's
CARTESIA_PATH = "/tts/websocket"
CARTESIA_QUERY_KEY = "api_key"  # for pages: in the URL of this one path
KEY_IN_FIRST_MESSAGE = re.compile(r"/v1/text-to-speech/[^/]+/(multi-)?stream-input")
OPENAI_KEY_SUBPROTOCOL = "openai-insecure-api-key."  # and the key as it is: OpenAI's pages send it


class KeyRing:
    """The valid keys, each with the name that the log has for it."""

    def __init__(self, keys: Sequence[str] = (), file: KeyFile | None = None) -> None:
        """The keys are named by their numbers, those of the file as it says."""
        self._numbered = {f"key {number}": _hash(key.encode()) for number, key in enumerate(keys)}
        self._file = file
        self._read: dict[str, str] = {}  # from the file
        self._hashes = self._numbered

    def __bool__(self) -> bool:
        """Whether a key is needed."""
        return bool(self._numbered) or self._file is not None

    def __contains__(self, name: object) -> bool:
        return name in self._valid()

    def name(self, key: bytes | None) -> str:
        """The name of this key, which must be a valid one."""
        digest = _hash(key or b"")
        valid = self._valid()
        names = [name for name in valid if hmac.compare_digest(digest, valid[name])]
        if key is None or not names:
            raise no_key()
        return names[0]

    def _valid(self) -> dict[str, bytes]:
        """Hashes by name."""
        if self._file and (keys := self._file.keys()) is not self._read:
            hashes = {name: _hash(key.encode()) for name, key in keys.items()}
            self._read, self._hashes = keys, hashes | self._numbered
        return self._hashes


def no_key() -> Refusal:
    return Refusal(
        401,
        "a valid key is needed: send it as 'Authorization: Bearer KEY'",
        "invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )


def _is_open(path: str) -> bool:
    return path in OPEN_TO_ALL or path.startswith(FILES_OF_THE_PAGE)


class Keys:
    """ASGI middleware that puts the name of the client's key into the scope.

    Without keys, anybody may ask, but no page of another host: browsers let every page open
    WebSockets to the user's own machine.
    """

    def __init__(self, app: ASGIApp, keys: KeyRing) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._keys and scope["type"] != "lifespan" and not _is_open(scope["path"]):
            key = _sent_key(scope)
            if key is None and _says_its_key_later(scope):
                scope["state"]["key_ring"] = self._keys
            else:
                name = scope["state"]["key"] = self._keys.name(key)
                scope["state"]["record"].client = name
        elif scope["type"] == "websocket":
            _check_origin(Headers(scope=scope))
        await self._app(scope, receive, send)


def bearer_key(authorization: str) -> bytes | None:
    """The key in the value of an `Authorization` header."""
    scheme, _, key = authorization.partition(" ")
    return key.strip().encode("latin-1") if scheme.lower() in KEY_SCHEMES else None  # as it came


def _sent_key(scope: Scope) -> bytes | None:
    headers = Headers(scope=scope)
    if key := bearer_key(headers.get("authorization", "")):
        return key
    for name in KEY_HEADERS:
        if name in headers:
            return headers[name].encode("latin-1")
    for offered in scope.get("subprotocols", ()):
        if offered.startswith(KEY_SUBPROTOCOL):
            return _from_base64url(offered.removeprefix(KEY_SUBPROTOCOL))
        if offered.startswith(OPENAI_KEY_SUBPROTOCOL):
            return str(offered.removeprefix(OPENAI_KEY_SUBPROTOCOL)).encode("latin-1")
    if scope["type"] == "websocket" and scope["path"] == CARTESIA_PATH:
        query = parse_qs(str(scope["query_string"], "latin-1"))
        if CARTESIA_QUERY_KEY in query:
            return query[CARTESIA_QUERY_KEY][0].encode()
    return None


def _says_its_key_later(scope: Scope) -> bool:
    """Whether the client may send its key in its first message, as ElevenLabs' do."""
    return scope["type"] == "websocket" and bool(KEY_IN_FIRST_MESSAGE.fullmatch(scope["path"]))


def _from_base64url(text: str) -> bytes | None:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (ValueError, binascii.Error):
        return None


def _check_origin(headers: Headers) -> None:
    """Programs send no origin. A page of this server's own host may ask, too."""
    origin = headers.get("origin")
    if origin is not None and _host(origin) != headers.get("host"):
        raise Refusal(
            403,
            "pages of other hosts need a key: set COSYSERVE_API_KEYS on the server",
            "origin_not_allowed",
        )


def _host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:  # half an IPv6 address
        return ""


def _hash(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
