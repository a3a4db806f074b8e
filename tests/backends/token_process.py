"""An LLM server in a process of its own, to be killed.

python tests/backends/token_process.py PORT [TOKENS]

After so many tokens of a stream it draws no more.
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKENS = 100  # of an utterance


class Completions(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for number in range(TOKENS):
            last = number == TOKENS - 1
            choice = {
                "index": 0,
                "text": "" if last else f"<|s_{number}|>",
                "finish_reason": "stop" if last else None,
            }
            self.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
            while [str(number)] == sys.argv[2:]:
                time.sleep(1)
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: object) -> None: ...


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Completions).serve_forever()
