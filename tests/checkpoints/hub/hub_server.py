"""A real HTTP server on this machine that speaks as much of both hubs as a download needs,
and a model to publish on it.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "maker/Voice2-0.5B"
WEIGHTS = bytes(range(256)) * 2_000
PUBLISHED = {
    "cosyvoice2.yaml": b"llm: {}\n",
    "configuration.json": b"{}",
    "llm.pt": WEIGHTS,
    "spk2info.pt": b"speakers",
    "campplus.onnx": b"onnx",
    "speech_tokenizer_v2.onnx": b"tokens",
    "CosyVoice-BlankEN/config.json": b'{"vocab_size": 1}',
    "CosyVoice-BlankEN/merges.txt": b"a b\n",
}
UNREAD = {
    "README.md": b"# Voice",
    "asset/picture.png": b"png",
    "speech_tokenizer_v2.batch.onnx": b"a batch",
    "CosyVoice-BlankEN/model.safetensors": b"942 MB",
    "flow.decoder.estimator.fp32.onnx": b"estimator",
}


@dataclass
class Hub:
    """What the server has, how it misbehaves, and what it was asked."""

    repo: str
    files: dict[str, bytes]
    listed: dict[str, dict[str, Any]] = field(default_factory=dict)  # overrides of ModelScope's
    cut: dict[str, int] = field(default_factory=dict)  # path: bytes before the connection breaks
    trouble: dict[str, int] = field(default_factory=dict)  # path: how often it answers 503
    ranges: bool = True
    gated: bool = False  # files need the token "open-sesame"
    silent: bool = False
    fetched: list[str] = field(default_factory=list)  # from the first byte on
    resumed: list[tuple[str, str]] = field(default_factory=list)
    tokens: dict[str, str | None] = field(default_factory=dict)  # path: Authorization
    requests: int = 0
    url: str = ""
    released: threading.Event = field(default_factory=threading.Event)


Start = Callable[..., Hub]
Fetch = Callable[..., Path]


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    handler = type("Bound", (_Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield hub
        finally:
            hub.released.set()
            server.shutdown()
            thread.join()


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.hub.requests += 1
        if self.hub.silent:
            self.hub.released.wait(30)
            self.close_connection = True
            return
        url = urlsplit(self.path)
        path, query = unquote(url.path), parse_qs(url.query)
        repo = self.hub.repo
        self.hub.tokens[path] = self.headers["Authorization"]
        if path == f"/api/models/{repo}/revision/main":
            self._json({"id": repo, "sha": COMMIT, "siblings": []})
        elif path == f"/api/models/{repo}/tree/{COMMIT}":
            self._json([self._tree_entry(name) for name in self.hub.files])
        elif path.startswith(f"/{repo}/resolve/{COMMIT}/"):
            self._file(path.removeprefix(f"/{repo}/resolve/{COMMIT}/"))
        elif path == f"/api/v1/models/{repo}/repo/files":
            assert query == {"Revision": ["master"], "Recursive": ["True"]}
            self._json({"Code": 200, "Success": True, "Data": {"Files": self._listing()}})
        elif path == f"/api/v1/models/{repo}/repo":
            # As ModelScope does, send the client on to where the bytes are.
            self._reply(302, b"", {"Location": f"{self.hub.url}/cdn/{query['FilePath'][0]}"})
        elif path.startswith("/cdn/"):
            self._file(path.removeprefix("/cdn/"))
        else:
            self._reply(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *args: object) -> None:
        pass

    def _tree_entry(self, name: str) -> dict[str, Any]:
        content = self.hub.files[name]
        entry = {"type": "file", "path": name, "size": len(content)}
        return entry | {"oid": hashlib.sha1(content).hexdigest()}

    def _listing(self) -> list[dict[str, Any]]:
        folders = {name.rpartition("/")[0] for name in self.hub.files} - {""}
        entries: list[dict[str, Any]] = [
            {"Path": folder, "Name": folder, "Type": "tree", "Size": 0, "Sha256": ""}
            for folder in folders
        ]
        for name, content in self.hub.files.items():
            entry: dict[str, Any] = {"Path": name, "Name": name.rpartition("/")[2], "Type": "blob"}
            entry |= {"Size": len(content), "Sha256": hashlib.sha256(content).hexdigest()}
            entries.append(entry | self.hub.listed.get(name, {}))
        return entries

    def _file(self, name: str) -> None:
        hub, content = self.hub, self.hub.files[name]
        if hub.gated and self.headers["Authorization"] != "Bearer open-sesame":
            self._reply(403, b"", {"X-Error-Code": "GatedRepo"})
            return
        if hub.trouble.get(name, 0):
            hub.trouble[name] -= 1
            self._reply(503, b"", {})
            return
        if self.command == "GET" and not self.headers["Range"]:
            hub.fetched.append(name)
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        status, start = 200, 0
        if asked := self.headers["Range"]:
            hub.resumed.append((name, asked))
            if hub.ranges:
                status, start = 206, int(asked.removeprefix("bytes=").partition("-")[0])
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        cut = hub.cut.pop(name, None) if self.command == "GET" else None
        self._reply(status, content[start:], headers, cut)

    def _json(self, data: object) -> None:
        self._reply(200, json.dumps(data).encode(), {"Content-Type": "application/json"})

    def _reply(
        self, status: int, body: bytes, headers: dict[str, str], cut: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:cut])
        if cut is not None:
            self.close_connection = True
