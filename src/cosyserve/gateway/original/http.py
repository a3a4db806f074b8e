"""Routes: text to speech as the original's FastAPI runtime is asked, bare 16-bit samples back.

Its client sends forms with GET. Unlike there, audio comes while a sentence is being spoken.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request, Response, UploadFile

from cosyserve.audio import AudioFormat
from cosyserve.gateway.connection.context import ConnectionContext
from cosyserve.gateway.original.fields import speech_fields
from cosyserve.gateway.speech.body import SpeechFields
from cosyserve.gateway.speech.framing import framing_of
from cosyserve.gateway.speech.response import SpeechResponse
from cosyserve.gateway.speech.routes import check_text

Text = Annotated[str, Form()]
RequiredText = Annotated[str, Form(pattern=r"\S")]
METHODS = ["GET", "POST"]


def routes(context: ConnectionContext) -> APIRouter:
    router = APIRouter(include_in_schema=False)

    async def speech(request: Request, tts_text: str, fields: SpeechFields) -> Response:
        record = request.state.record
        record.characters = len(tts_text)
        check_text(tts_text, context.limits, "tts_text")
        context.rates.take(record, len(tts_text))
        speech_request = await context.interpreter.request(fields, tts_text, record)
        framing = framing_of("audio", AudioFormat.PCM, None, context.encoders)
        return SpeechResponse(
            *(context.engine, speech_request, framing, record),
            watermark=context.interpreter.watermark,
            trim=context.interpreter.trims(fields),
        )

    @router.api_route("/inference_sft", methods=METHODS)
    async def sft(request: Request, tts_text: Text, spk_id: Text) -> Response:
        return await speech(request, tts_text, await speech_fields(context, spk_id=spk_id))

    @router.api_route("/inference_zero_shot", methods=METHODS)
    async def zero_shot(
        request: Request, tts_text: Text, prompt_text: Text, prompt_wav: UploadFile
    ) -> Response:
        wav = await prompt_wav.read()
        fields = await speech_fields(context, prompt_wav=wav, prompt_text=prompt_text)
        return await speech(request, tts_text, fields)

    @router.api_route("/inference_cross_lingual", methods=METHODS)
    async def cross_lingual(request: Request, tts_text: Text, prompt_wav: UploadFile) -> Response:
        fields = await speech_fields(context, prompt_wav=await prompt_wav.read())
        return await speech(request, tts_text, fields)

    @router.api_route("/inference_instruct", methods=METHODS)
    async def instruct(
        request: Request, tts_text: Text, spk_id: Text, instruct_text: RequiredText
    ) -> Response:
        fields = await speech_fields(context, spk_id=spk_id, instruct_text=instruct_text)
        return await speech(request, tts_text, fields)

    @router.api_route("/inference_instruct2", methods=METHODS)
    async def instruct2(
        request: Request, tts_text: Text, instruct_text: RequiredText, prompt_wav: UploadFile
    ) -> Response:
        wav = await prompt_wav.read()
        fields = await speech_fields(context, instruct_text=instruct_text, prompt_wav=wav)
        return await speech(request, tts_text, fields)

    return router
