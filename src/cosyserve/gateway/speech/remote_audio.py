"""Recordings that a request names by a URL.

A stranger's URL must not lead into the operator's own network: each host is resolved here, all of
its addresses are checked, and the connection goes to a checked one, so that a second answer of a
DNS server changes nothing. Redirects are followed in the same way.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections import defaultdict
from functools import cache

import httpx

from cosyserve.errors import AudioError
from cosyserve.voices.memory.lru import ByteLRU

SECONDS = 10.0
MAX_REDIRECTS = 3
NAT64 = ipaddress.ip_network("64:ff9b::/96")  # IPv4 addresses inside IPv6 ones
UNICAST = ipaddress.ip_network("2000::/3")  # all of IPv6 that anybody was given
RESERVED = (
    ipaddress.ip_network("3fff::/20"),  # for documentation
    ipaddress.ip_network("168.63.129.16/32"),  # Azure's own services, inside every machine there
)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Fetches:
    """The recordings that one request names, each fetched once if they are not large together."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._fetched: ByteLRU[bytes] = ByteLRU(max_bytes)
        self._refused: dict[str, AudioError] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def get(self, url: str) -> bytes:
        async with self._turns[url]:
            if url in self._refused:
                raise self._refused[url]
            data = self._fetched.get(url)
            if data is None:
                try:
                    data = await fetch(url, self._max_bytes)
                except AudioError as refused:
                    self._refused[url] = refused
                    raise
                self._fetched.put(url, data, len(data))
            return data


async def fetch(url: str, max_bytes: int) -> bytes:
    """The bytes at the URL."""
    authorities = await asyncio.to_thread(_authorities)
    try:
        async with (
            asyncio.timeout(SECONDS),
            httpx.AsyncClient(trust_env=False, timeout=SECONDS, verify=authorities) as client,
        ):
            for _ in range(MAX_REDIRECTS + 1):
                answer = await _get(client, httpx.URL(url), max_bytes)
                if isinstance(answer, bytes):
                    return answer
                url = answer
    except TimeoutError:
        raise AudioError(f"the URL took more than {SECONDS:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError, OSError) as error:
        raise AudioError("the URL can't be read") from error
    raise AudioError(f"the URL leads through more than {MAX_REDIRECTS} redirects")


async def _get(client: httpx.AsyncClient, url: httpx.URL, max_bytes: int) -> bytes | str:
    """The bytes, or the URL of a redirect."""
    if url.scheme not in ("http", "https") or not url.host:
        raise AudioError("the URL must be an http(s) one")
    address = await _public_address(url.host, url.port or 0)
    request = client.build_request(
        "GET",
        url.copy_with(host=address),
        headers={"Host": url.netloc.decode("ascii"), "Accept-Encoding": "identity"},
        extensions={"sni_hostname": url.host},  # whose certificate is checked
    )
    answer = await client.send(request, stream=True)
    try:
        if answer.has_redirect_location:
            return str(url.join(answer.headers["location"]))
        if not answer.is_success:
            raise AudioError(f"the URL answers {answer.status_code}")
        if answer.headers.get("content-encoding", "identity").lower() != "identity":
            raise AudioError("the URL answers with compressed bytes, which nobody asked for")
        data = bytearray()
        async for piece in answer.aiter_raw():
            data += piece
            if len(data) > max_bytes:
                raise AudioError(f"the recording at the URL is larger than {max_bytes} bytes")
        return bytes(data)
    finally:
        await answer.aclose()


@cache
def _authorities() -> ssl.SSLContext:
    """Whose certificates are believed: read once, for it takes long."""
    return httpx.create_ssl_context(trust_env=False)


async def _public_address(host: str, port: int) -> str:
    """An address of the host; one that is not public is refused, whichever the others are."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in found]
    if not addresses or not all(is_public(ipaddress.ip_address(a)) for a in addresses):
        raise AudioError("the URL leads to an address that is not public")
    return addresses[0]


def is_public(address: Address) -> bool:
    """Whether everybody can reach the address: it is not private, loopback, link-local or such."""
    if isinstance(address, ipaddress.IPv6Address):
        inside = address.ipv4_mapped or address.sixtofour
        if address in NAT64:
            inside = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if inside:
            return is_public(inside)
        if address.teredo or address not in UNICAST:
            return False
    reserved = any(address in network for network in RESERVED)
    return address.is_global and not (address.is_multicast or reserved)
