"""The messages of the original's gRPC runtime, described here so that no code is generated.

They are kept apart from other descriptions of the same names in this process.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "cosyvoice"
SERVICE, METHOD = f"{PACKAGE}.CosyVoice", "Inference"
# Fields by message, in the order of their numbers, which begin at 1.
FIELDS = {
    "sftRequest": ("spk_id", "tts_text"),
    "zeroshotRequest": ("tts_text", "prompt_text", "prompt_audio"),
    "crosslingualRequest": ("tts_text", "prompt_audio"),
    "instructRequest": ("tts_text", "spk_id", "instruct_text"),
    "Response": ("tts_audio",),
}
BYTES = {"prompt_audio", "tts_audio"}
PAYLOADS = {  # the one field of a Request, in the order of their numbers
    "sft_request": "sftRequest",
    "zero_shot_request": "zeroshotRequest",
    "cross_lingual_request": "crosslingualRequest",
    "instruct_request": "instructRequest",
}
ONEOF = "RequestPayload"

_Field = descriptor_pb2.FieldDescriptorProto


def _describe() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="cosyvoice.proto", package=PACKAGE, syntax="proto3"
    )
    for message, names in FIELDS.items():
        described = file.message_type.add(name=message)
        for number, name in enumerate(names, start=1):
            kind = _Field.TYPE_BYTES if name in BYTES else _Field.TYPE_STRING
            described.field.add(name=name, number=number, type=kind, label=_Field.LABEL_OPTIONAL)
    request = file.message_type.add(name="Request")
    request.oneof_decl.add(name=ONEOF)
    for number, (name, message) in enumerate(PAYLOADS.items(), start=1):
        request.field.add(
            name=name,
            number=number,
            type=_Field.TYPE_MESSAGE,
            type_name=f".{PACKAGE}.{message}",
            label=_Field.LABEL_OPTIONAL,
            oneof_index=0,
        )
    return file


_pool = descriptor_pool.DescriptorPool()
_pool.AddSerializedFile(_describe().SerializeToString())


def _message_class(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


Request, Response = _message_class("Request"), _message_class("Response")
