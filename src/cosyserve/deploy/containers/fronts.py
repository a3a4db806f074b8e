"""nginx and Envoy before several gateways, and before several Triton servers, as their files.

Nothing is held back on its way, a connection may be silent as long as a request may take, and a
request that nobody has answered yet goes to another server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from cosyserve.errors import InputError
from cosyserve.settings import Settings

ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*:(\d{1,5})")
LONGEST = int(Settings.model_fields["max_request_seconds"].default) + 30  # a request, and its end
BODY_BYTES = int(Settings.model_fields["max_body_bytes"].default)
GRPC_BYTES = 64 << 20
DRAWS = 4  # of which Envoy takes the one with the fewest; with all, it could not ask elsewhere

TYPE = "type.googleapis.com/"
HTTP_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
PREVIOUS_HOSTS = "retry.host.previous_hosts.v3.PreviousHostsPredicate"
MANAGER = "filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER = "filters.http.router.v3.Router"


@dataclass(frozen=True)
class Front:
    """Who is behind it, as host:port, and where it listens itself."""

    servers: tuple[str, ...] = ()
    tritons: tuple[str, ...] = ()
    port: int = 8080
    grpc_port: int = 8001

    def __post_init__(self) -> None:
        if not self.servers and not self.tritons:
            raise InputError("give --server HOST:PORT of a gateway, or --triton HOST:PORT")
        for address in (*self.servers, *self.tritons):
            found = ADDRESS.fullmatch(address)
            if not found or not 1 <= int(found[1]) <= 65535:
                raise InputError(f"{address!r:.80}: write HOST:PORT, as speech-1:8080")
            if (self.servers + self.tritons).count(address) > 1:
                raise InputError(f"{address} is given twice")
        if self.servers and self.tritons and self.port == self.grpc_port:
            raise InputError(f"port {self.port} is given twice: choose another --grpc-port")


def nginx(front: Front) -> str:
    """The text of nginx.conf."""
    parts = ["worker_processes auto;", "events { worker_connections 4096; }", "http {"]
    if front.servers:
        parts += [
            '  map $http_upgrade $connection_upgrade { default upgrade; "" ""; }',
            _nginx_upstream("gateways", front.servers),
            "  server {",
            f"    listen {front.port};",
            f"    client_max_body_size {BODY_BYTES};",
            "    client_body_buffer_size 1m;",
            "    location / {",
            "      proxy_pass http://gateways;",
            "      proxy_http_version 1.1;",
            "      proxy_set_header Host $http_host;",
            "      proxy_set_header Upgrade $http_upgrade;",
            "      proxy_set_header Connection $connection_upgrade;",
            "      proxy_buffering off;",
            "      # 503: a server that is about to end. What has begun to speak can't be moved.",
            "      proxy_next_upstream error timeout http_503 non_idempotent;",
            *_nginx_times("proxy"),
            "    }",
            "  }",
        ]
    if front.tritons:
        parts += [
            _nginx_upstream("tritons", front.tritons),
            "  server {",
            f"    listen {front.grpc_port} http2;",
            "    keepalive_requests 100000;",
            f"    client_max_body_size {GRPC_BYTES};",
            "    location / {",
            "      grpc_pass grpc://tritons;",
            "      # A stream that has begun can't be moved.",
            "      grpc_next_upstream error timeout;",
            *_nginx_times("grpc"),
            "    }",
            "  }",
        ]
    return "\n".join([*parts, "}", ""])


def _nginx_upstream(name: str, addresses: tuple[str, ...]) -> str:
    servers = [f"    server {address} max_fails=1 fail_timeout=2s;" for address in addresses]
    lines = [f"  upstream {name} {{", "    least_conn;", *servers, "    keepalive 64;", "  }"]
    return "\n".join(lines)


def _nginx_times(kind: str) -> list[str]:
    times = {"connect_timeout": "1s", "read_timeout": f"{LONGEST}s", "send_timeout": f"{LONGEST}s"}
    lines = [f"      {kind}_{name} {value};" for name, value in times.items()]
    return [*lines, f"      {kind}_socket_keepalive on;"]


def envoy(front: Front) -> str:
    """The text of envoy.yaml."""
    listeners, clusters = [], []
    if front.servers:
        check = {"http_health_check": {"path": "/ready"}}
        listeners.append(_envoy_listener("gateways", front.port))
        clusters.append(_envoy_cluster("gateways", front.servers, check))
    if front.tritons:
        listeners.append(_envoy_listener("tritons", front.grpc_port))
        cluster = _envoy_cluster("tritons", front.tritons, {"tcp_health_check": {}})
        http2: dict[str, Any] = {"http2_protocol_options": {}}
        http2 = {"@type": TYPE + HTTP_OPTIONS, "explicit_http_config": http2}
        cluster["typed_extension_protocol_options"] = {HTTP_OPTIONS: http2}
        clusters.append(cluster)
    content = {"static_resources": {"listeners": listeners, "clusters": clusters}}
    text: str = yaml.safe_dump(content, sort_keys=False)
    return text


def _typed(name: str, kind: str, **content: Any) -> dict[str, Any]:
    typed = {"@type": f"{TYPE}envoy.extensions.{kind}", **content}
    return {"name": f"envoy.{name}", "typed_config": typed}


def _envoy_listener(cluster: str, port: int) -> dict[str, Any]:
    idle = f"{LONGEST}s"
    retried = {
        "retry_on": "connect-failure,refused-stream,retriable-status-codes",
        "retriable_status_codes": [503],  # a server that is about to end
        "num_retries": 1,
        "retry_host_predicate": [_typed("retry_host_predicates.previous_hosts", PREVIOUS_HOSTS)],
        "host_selection_retry_max_attempts": 100,  # who refuses has the fewest: mostly it is drawn
    }
    # Envoy ends an answer after 15 s unless it is told not to.
    route = {"cluster": cluster, "timeout": "0s", "idle_timeout": idle, "retry_policy": retried}
    manager = _typed(
        "http_connection_manager",
        MANAGER,
        stat_prefix=cluster,
        stream_idle_timeout=idle,
        upgrade_configs=[{"upgrade_type": "websocket"}],
        route_config={
            "virtual_hosts": [
                {
                    "name": cluster,
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": route}],
                }
            ]
        },
        http_filters=[_typed("filters.http.router", ROUTER)],
    )
    return {
        "name": cluster,
        "address": {"socket_address": {"address": "0.0.0.0", "port_value": port}},
        "per_connection_buffer_limit_bytes": GRPC_BYTES,
        "filter_chains": [{"filters": [manager]}],
    }


def _envoy_cluster(name: str, addresses: tuple[str, ...], check: dict[str, Any]) -> dict[str, Any]:
    times = {"timeout": "2s", "interval": "1s", "unhealthy_threshold": 1, "healthy_threshold": 1}
    endpoints = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        place = {"socket_address": {"address": host, "port_value": int(port)}}
        endpoints.append({"endpoint": {"address": place}})
    return {
        "name": name,
        "type": "STRICT_DNS",
        "connect_timeout": "1s",
        "lb_policy": "LEAST_REQUEST",
        "least_request_lb_config": {"choice_count": DRAWS},
        "per_connection_buffer_limit_bytes": GRPC_BYTES,
        "health_checks": [times | check],
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
    }
