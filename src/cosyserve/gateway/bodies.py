"""Bodies of requests: JSON, or the same fields as a form; recordings in base64, or as files."""

from __future__ import annotations

import base64
import binascii
from typing import Any, NoReturn

from fastapi import Request
from pydantic_core import from_json
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from cosyserve.gateway.errors import Refusal

MAX_FIELDS = 32
MAX_FILES = 2
MAX_VALUES = 50_000  # of JSON; everybody waits while it is read, a million take seconds
MAX_NUMBERS = 1_000_000  # where a recording may come as numbers


async def read_fields(request: Request) -> Any:
    """The fields of a body, which may also be no object at all. Files are bytes."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind == "application/json":
        return _json_fields(await request.body())
    if kind == "multipart/form-data":
        return await _form_fields(request)
    raise Refusal(
        415, "send the body as application/json or multipart/form-data", "unsupported_media_type"
    )


class JSONBounds:
    """What may come as JSON: so many values, whatever they are not too many lists, objects and
    fields; counted before they are read, with what only looks like them inside a text."""

    def __init__(self, most: int = MAX_VALUES) -> None:
        self._most = most
        self._values = self._slow = 0

    def take(self, data: bytes | str) -> None:
        """Counts those of the next piece."""
        self._values += _count(data, ",[{")
        self._slow += _count(data, "[{:")
        if self._values > self._most:
            self._refuse(f"{self._most} values or commas")
        if self._slow > MAX_VALUES:
            self._refuse(f"{MAX_VALUES} lists, objects and fields")

    def _refuse(self, what: str) -> NoReturn:
        raise Refusal(400, f"the JSON has more than {what}: send fewer", "too_many_values")


def read_base64(value: str) -> bytes:
    """The bytes of base64, or of a data: URL in it."""
    data = value
    if value[:5].lower() == "data:":
        head, _, data = value.partition(",")
        if not head.lower().endswith(";base64"):
            raise ValueError("a data: URL must be in base64")
    try:
        return base64.b64decode(data, validate=True)
    except (ValueError, binascii.Error):
        raise ValueError("not valid base64; send base64, a data: URL or an http(s) URL") from None


def _count(data: bytes | str, characters: str) -> int:
    if isinstance(data, str):
        return sum(map(data.count, characters))
    return sum(map(data.count, characters.encode()))


def _json_fields(data: bytes) -> Any:
    """The body as plain data; a model that begins with `translate` reads JSON only half as fast."""
    try:
        return from_json(data)
    except ValueError as error:
        raise Refusal(400, f"the body is not JSON: {error}", "invalid_json") from error


async def _form_fields(request: Request) -> dict[str, str | bytes]:
    try:
        async with request.form(max_files=MAX_FILES, max_fields=MAX_FIELDS) as form:
            return {
                name: await value.read() if isinstance(value, UploadFile) else value
                for name, value in form.items()
            }
    except HTTPException:
        raise
    except Exception as error:  # a parser's surprise at bytes of a stranger
        raise Refusal(400, "the form can't be read", "invalid_form") from error
