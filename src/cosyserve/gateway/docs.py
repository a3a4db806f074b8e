"""Route: the API for people, as one page that needs nothing from elsewhere. Knows no operation."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import HTMLResponse


def routes() -> APIRouter:
    router = APIRouter()
    page = files("cosyserve.gateway").joinpath("docs.html").read_text("utf-8")

    @router.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page)

    return router
