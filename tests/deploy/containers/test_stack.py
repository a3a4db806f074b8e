"""A stack that makes no sense is refused in a sentence."""

from __future__ import annotations

import pytest

from cosyserve.deploy.containers.stack import Stack
from cosyserve.errors import InputError

TRTLLM = ("llm=trtllm", "model=m", "engine=e", "tokenizer=t")


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        (["layout=disaggregated"], "takes 4 GPUs, 1 for the LM and 3 .* but gpus=1"),
        (["layout=disaggregated", "gpus=3"], "takes 4 GPUs"),
        (["layout=triton", "gpus=0", *TRTLLM], "llm=trtllm needs a GPU"),
        (["replicas=3", "max_replicas=8", "gpus=4"], "max_replicas=8 take a GPU each, but gpus=4"),
        (["replicas=3", "gpus=2"], "max_replicas=3 take a GPU each, but gpus=2"),
        (["replicas=3", "max_replicas=2", "gpus=4"], "replicas=3 are more than max_replicas"),
        (["layout=triton", "port=8001"], "port 8001 is given twice, to the gateway and to triton"),
        (["port=9090"], "port 9090 .* to the gateway and to the gateway .metrics."),
        (["layout=triton", "gpus=2", "http_port=9000", "grpc_port=9001"], "port 9001 .* twice"),
        (["layout=triton", "gpus=2", "http_port=65535"], "must be 1..65535, got 65536"),
        (["keys=false"], "keys=false lets anybody who reaches 0.0.0.0"),
        (["keys=false", "address=127.0.0.1", "host=tts.example.org"], "tts.example.org"),
        (["image="], "image='' and tag="),
        (["tag=a b"], "tag='a b' name no images"),
        (["address=localhost"], "address must be an IP address, got 'localhost'"),
        (["llm=trtllm"], "llm=trtllm is for layout=triton"),
        (["layout=triton", "llm=trtllm", "model=m"], "llm=trtllm needs engine=FOLDER"),
        (["engine=e"], "engine is for llm=trtllm"),
        (["instances_per_gpu=2"], "instances_per_gpu is for Triton servers"),
        (["layout=fleet"], "layout must be one of server, triton, disaggregated"),
        (["gpus=two"], "gpus must be a whole number of 0..1024"),
        (["gpu=1"], "'gpu=1': use key=value with one of layout, "),
    ],
)
def test_nonsense_is_refused(pairs: list[str], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        Stack.of(pairs)


def test_one_host_alone_needs_no_keys() -> None:
    for address in ("127.0.0.1", "::1"):
        assert not Stack.of(["keys=false", f"address={address}"]).keys


def test_ports_are_the_originals() -> None:
    def ports(*pairs: str) -> list[tuple[int, ...]]:
        stack = Stack.of(pairs)
        numbers = range(len(stack.triton_names()))
        return [tuple(vars(stack.triton_ports(number)).values()) for number in numbers]

    assert ports("layout=triton") == [(8000, 8001, 8002)]
    assert ports("layout=triton", "flow=dit", *TRTLLM) == [(18000, 8001, 8002)]
    apart = ports("layout=disaggregated", "gpus=4", "instances_per_gpu=2")
    assert apart[0] == (17001, 18001, 16001)
    assert apart[5] == (17006, 18006, 16006)
    assert len(apart) == 6


def test_what_was_given_gives_the_same_stack() -> None:
    stack = Stack.of(["layout=triton", "gpus=2", "keys=true", "image=here.example.org/tts"])
    assert Stack.of(stack.given()) == stack
