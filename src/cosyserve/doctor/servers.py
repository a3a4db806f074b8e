"""Servers on this machine: ports that ours want, the tritonserver, and whether it is ready."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from cosyserve.doctor import troubles
from cosyserve.doctor.finding import Finding
from cosyserve.errors import CosyError
from cosyserve.triton.process import Ports, find_tritonserver


def servers(port: int, ports: Ports | None = None) -> Iterator[Finding]:
    """Of the gateway's port and Triton's."""
    triton = ports or Ports()
    health = triton_health(triton)
    yield from filter(None, [health])
    wanted = {"gateway": port}
    if not health:
        wanted |= {"Triton HTTP": triton.http, "Triton gRPC": triton.grpc}
        wanted |= {"Triton metrics": triton.metrics}
    for name, number in wanted.items():
        taken = is_taken(number)
        advice = troubles.TAKEN_PORT.fix if taken else ""
        yield Finding(f"port {number}", f"{name}: {'taken' if taken else 'free'}", None, advice)
    yield tritonserver()


def is_taken(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def tritonserver() -> Finding:
    try:
        return Finding("tritonserver", str(Path(find_tritonserver())))
    except CosyError:
        return Finding("tritonserver", "none", None, troubles.NO_TRITON.fix)


def triton_health(ports: Ports) -> Finding | None:
    """Of a Triton server that answers; None: there is none."""
    url = f"http://127.0.0.1:{ports.http}/v2/health/ready"
    try:
        with urllib.request.urlopen(url, timeout=2):
            return Finding("Triton", f"ready at port {ports.http}", True)
    except urllib.error.HTTPError as error:
        if error.code in (400, 503):
            detail = f"not ready at port {ports.http}"
            return Finding("Triton", detail, False, troubles.TRITON_NOT_READY.fix)
    except (OSError, ValueError):
        pass
    return None
