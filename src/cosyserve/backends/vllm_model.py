"""CosyVoice2's speech LM as a model of vLLM: Qwen2 whose head has a bias, which vLLM's own lacks.

`vllm.register` names it to vLLM, which imports it where it computes.
"""

from __future__ import annotations

from typing import Any

from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.models.qwen2 import Qwen2ForCausalLM


class CosyVoiceSpeechLM(Qwen2ForCausalLM):  # type: ignore[misc]  # vLLM may not be installed
    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.lm_head = ParallelLMHead(
            self.config.vocab_size,
            self.config.hidden_size,
            bias=True,
            quant_config=self.quant_config,
            prefix=f"{prefix}.lm_head" if prefix else "lm_head",
        )

    def compute_logits(self, hidden_states: Any) -> Any:
        return self.logits_processor(self.lm_head, hidden_states, self.lm_head.bias)
