"""Routes: models, health, readiness, metrics, and the API's documentation as one page."""

from __future__ import annotations

import time
from importlib.resources import files

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from cosyserve.contracts import ModelInfo
from cosyserve.gateway.limits import Gate
from cosyserve.gateway.models import Models
from cosyserve.gateway.policy import Policy
from cosyserve.gateway.telemetry.metrics import Metrics

NOT_SPEECH = "test model: not speech"


class ModelEntry(BaseModel):
    id: str
    object: str = "model"
    created: int
    owned_by: str = "cosyserve"
    description: str


class ModelList(BaseModel):
    object: str = "list"
    data: list[ModelEntry]


class AudioModel(BaseModel):
    id: str
    name: str


class AudioModelList(ModelList):
    """The models as programs want them that list speech models apart."""

    models: list[AudioModel]


class Health(BaseModel):
    status: str


def describe(model: ModelInfo) -> str:
    return model.family if model.speech else NOT_SPEECH


def routes(models: Models, metrics: Metrics, gate: Gate, policy: Policy) -> APIRouter:
    router = APIRouter(tags=["status"])
    created = int(time.time())
    page = files("cosyserve.gateway").joinpath("docs.html").read_text("utf-8")

    def entry(model: ModelInfo) -> ModelEntry:
        return ModelEntry(id=model.name, created=created, description=describe(model))

    @router.get("/v1/models")
    async def list_models() -> ModelList:
        return ModelList(data=[entry(engine.model) for engine in models.engines])

    @router.get("/v1/models/{name:path}")
    async def show_model(name: str) -> ModelEntry:
        return entry(models.named(name, policy).model)

    @router.get("/v1/audio/models")
    async def list_audio_models() -> AudioModelList:
        entries = [entry(engine.model) for engine in models.engines]
        names = [AudioModel(id=model.id, name=model.id) for model in entries]
        return AudioModelList(data=entries, models=names)

    @router.get("/health")
    async def health() -> Health:
        """This process is alive."""
        return Health(status="ok")

    @router.get("/ready", responses={503: {"model": Health, "description": "Not now."}})
    async def ready() -> JSONResponse:
        """Every model can speak."""
        good = models.stats().ready and not gate.closed
        health = Health(status="ready" if good else "not ready")
        return JSONResponse(health.model_dump(), 200 if good else 503)

    @router.get("/metrics", response_class=Response)
    async def prometheus() -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @router.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page)

    return router
