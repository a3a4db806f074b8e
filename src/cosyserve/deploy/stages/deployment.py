"""A deployment as the original's scripts lay it out: folders, models, ports, and what to ask it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cosyserve.deploy.stages.stage import Command, Need, ServerCommand, answer_needed, path_needed
from cosyserve.deploy.triton.settings import TritonSettings
from cosyserve.errors import InputError
from cosyserve.triton.process import Ports

Flow = Literal["unet", "dit"]
LLM = Literal["ours", "trtllm"]
Hub = Literal["huggingface", "modelscope"]

LM_NAME = "yuekai/cosyvoice2_llm"
MODEL_NAMES: dict[Hub, str] = {
    "huggingface": "FunAudioLLM/CosyVoice2-0.5B",
    "modelscope": "ms:iic/CosyVoice2-0.5B",
}
TOKEN2WAV_NAME = "stepfun-ai/Step-Audio-2-mini/token2wav"
SPK2INFO_URL = (
    "https://raw.githubusercontent.com/qi-hua/async_cosyvoice/main/CosyVoice2-0.5B/spk2info.pt"
)
DATASET = ("--huggingface-dataset", "yuekai/seed_tts_cosy2", "--split-name", "wenetspeech4tts")
SENTENCE = "It is good to hear from you, after such a long time."


@dataclass(frozen=True)
class Deployment:
    """The choices of whoever runs the stages."""

    folder: Path
    flow: Flow = "unet"
    llm: LLM = "ours"
    hub: Hub = "modelscope"
    trt_dtype: str = "bfloat16"
    settings: tuple[str, ...] = ()  # of the Triton repository, as key=value
    reference_audio: Path | None = None
    reference_text: str = ""
    target_text: str = SENTENCE
    manifest: Path | None = None  # of texts; None: the original's dataset, from Hugging Face
    tokens: Path | None = None  # a file of speech tokens; None: those of that dataset
    num_tasks: int = 4
    mode: Literal["streaming", "offline"] = "streaming"
    use_spk2info_cache: bool = False
    batch_sizes: tuple[int, ...] = (16, 8, 4, 2, 1)
    gpus: int = 3  # of token2wav, where the LM has one of its own
    instances_per_gpu: int = 2
    first_ports: Ports | None = None  # None: those of the original
    llm_port: int = 8000  # of trtllm-serve, or the first of three of a Triton server for the LM
    set_name: str = ""  # tells repositories of equal sets of GPUs apart

    def __post_init__(self) -> None:
        if self.flow == "dit" and self.use_spk2info_cache:
            raise InputError(
                "--use-spk2info-cache is for --flow unet: with dit a recording speaks, give it "
                "with --reference-audio"
            )

    @property
    def lm_folder(self) -> Path:
        """The speech LM as Hugging Face has it."""
        return self.folder / "cosyvoice2_llm"

    @property
    def published(self) -> Path:
        return self.folder / "CosyVoice2-0.5B"

    @property
    def spk2info(self) -> Path:
        return self.published / "spk2info.pt"

    @property
    def token2wav(self) -> Path:
        """The DiT flow and its vocoder."""
        return self.folder / "Step-Audio-2-mini-token2wav"

    @property
    def native(self) -> Path:
        return self.folder / f"native{self._suffix}"

    @property
    def checkpoint(self) -> Path:
        return self.folder / f"trt_weights_{self.trt_dtype}"

    @property
    def engine(self) -> Path:
        return self.folder / f"trt_engines_{self.trt_dtype}"

    @property
    def repository(self) -> Path:
        return self.folder / f"model_repo_cosyvoice2{self._suffix}{self.set_name}"

    @property
    def lm_repository(self) -> Path:
        """Of a server for the LM alone."""
        return self.repository.with_name(f"{self.repository.name}_lm")

    @property
    def token2wav_repository(self) -> Path:
        """Of the servers that ask another for the LM."""
        return self.repository.with_name(f"{self.repository.name}_token2wav")

    @property
    def lm_ports(self) -> Ports:
        return Ports(self.llm_port, self.llm_port + 1, self.llm_port + 2)

    @property
    def model_name(self) -> str:
        return f"cosyvoice2{self._suffix}"

    @property
    def _suffix(self) -> str:
        return "_dit" if self.flow == "dit" else ""

    def log_folder(self, *parts: object) -> Path:
        return self.folder / "_".join(map(str, ("log", self.model_name, *parts)))

    def render(self, out: Path, *settings: str) -> Command:
        chosen = (*settings, *self.settings)
        TritonSettings.of(chosen)  # refuses now what the stage would refuse after hours
        pairs = (item for pair in chosen for item in ("--set", pair))
        return cosyserve("deploy", "triton", "--model", self.native, "--out", out, *pairs)

    def ask_once(self, ports: Ports) -> Command:
        """One request over HTTP, whose answer is written to a file."""
        return cosyserve(
            *("client", "http", "--server-url", f"localhost:{ports.http}"),
            *self._reference(),
            *("--target-text", self.target_text),
            *("--model-name", f"{self.model_name}_offline"),
            *("--output-audio", self.folder / "output.wav"),
        )

    def texts(self) -> Sequence[object]:
        """The options that say what is spoken in a benchmark."""
        return DATASET if self.manifest is None else ("--manifest-path", self.manifest)

    def _reference(self) -> Sequence[object]:
        if self.reference_audio is None:
            return ()
        return (
            *("--reference-audio", self.reference_audio),
            *("--reference-text", self.reference_text),
        )

    def needs_of_texts(self) -> tuple[Need, ...]:
        if self.manifest is None:
            return ()
        return (path_needed(self.manifest, "give --manifest another file"),)

    def needs_of_tokens(self) -> tuple[Need, ...]:
        if self.tokens is None:
            return ()
        return (path_needed(self.tokens, "give --tokens another file"),)

    def needs_of_voice(self) -> tuple[Need, ...]:
        """A published model has no voice of its own."""
        if self.reference_audio is not None:
            return (path_needed(self.reference_audio, "give --reference-audio another recording"),)
        advice = "no voice is there to speak: give --reference-audio and --reference-text"
        if self.flow == "dit":
            return (Need(lambda: False, advice),)
        advice += f", or have {self.spk2info} (stage 0 with --use-spk2info-cache)"
        return (Need(self.spk2info.exists, advice),)


def cosyserve(*words: object) -> Command:
    return Command(("cosyserve", *map(str, words)))


def triton_server(repository: Path, ports: Ports, gpu: int) -> ServerCommand:
    """A tritonserver that is replaced when it loses a process."""
    argv = (
        *("cosyserve", "deploy", "start", str(repository)),
        *("--http-port", str(ports.http), "--grpc-port", str(ports.grpc)),
        *("--metrics-port", str(ports.metrics)),
    )
    env = {"CUDA_VISIBLE_DEVICES": str(gpu)}
    return ServerCommand(argv, env, ready_url(ports), (ports.http, ports.grpc, ports.metrics))


def ready_url(ports: Ports) -> str:
    return f"http://localhost:{ports.http}/v2/health/ready"


def triton_needed(ports: Ports, stage: int) -> Need:
    """A Triton server that another run of the stages has started."""
    advice = f"start it in another terminal, with --stage {stage} --stop-stage {stage}"
    return answer_needed(ready_url(ports), advice)
