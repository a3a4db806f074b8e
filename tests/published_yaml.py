"""The yaml files of tiny models in the published layouts."""

from __future__ import annotations

from cosyserve.checkpoints.published import keys as keys

VOCODER_YAML = """
hift: !new:vocoder.Generator
    in_channels: 80
    base_channels: 16
    nb_harmonics: 8
    sampling_rate: !ref <sample_rate>
    nsf_alpha: 0.1
    nsf_sigma: 3e-3
    nsf_voiced_threshold: 10
    upsample_rates: [8, 15]
    upsample_kernel_sizes: [16, 21]
    istft_params:
        n_fft: 16
        hop_len: 4
    resblock_kernel_sizes: [3, 7]
    resblock_dilation_sizes: [[1, 3], [1]]
    source_resblock_kernel_sizes: [7, 11]
    source_resblock_dilation_sizes: [[1], [1, 3]]
    lrelu_slope: 0.1
    audio_limit: 0.99
    f0_predictor: !new:vocoder.Pitch
        num_class: 1
        in_channels: 80
        cond_channels: 16
"""
COSYVOICE2_YAML = (
    """
seed: !apply:random.seed [1986]
sample_rate: 24000
spk_embed_dim: 192
model_path: ''

llm: !new:lm.SpeechLM
    speech_token_size: 6561
    sampling: !name:sampling.ras
        top_p: 0.8

flow: !new:flow.Flow
    input_size: 32
    output_size: 80
    spk_embed_dim: !ref <spk_embed_dim>
    vocab_size: 6561
    pre_lookahead_len: 3
    encoder: !new:flow.Encoder
        output_size: 32
        attention_heads: 2
        linear_units: 48
        num_blocks: 1
    decoder: !new:flow.Decoder
        cfm_params: !new:omegaconf.DictConfig
            content:
                sigma_min: 1e-06
                inference_cfg_rate: 0.7
        estimator: !new:flow.Estimator
            channels: [16]
            attention_head_dim: 8
            n_blocks: 1
            num_mid_blocks: 1
            num_heads: 2
"""
    + VOCODER_YAML
    + """
tokenize: !name:text.tokenize
    path: !ref <model_path>
"""
)
COSYVOICE3_YAML = """
sample_rate: 24000
spk_embed_dim: 192
token_mel_ratio: 2
chunk_size: 25

llm: !new:lm.SpeechLM
    speech_token_size: 6561

flow: !new:flow.Flow
    input_size: 80
    output_size: 80
    spk_embed_dim: !ref <spk_embed_dim>
    vocab_size: 6561
    pre_lookahead_len: 3
    pre_lookahead_layer: !new:flow.PreLookahead
        in_channels: 80
        channels: 24
        pre_lookahead_len: 3
    decoder: !new:flow.Decoder
        cfm_params: !new:omegaconf.DictConfig
            content:
                sigma_min: 1e-06
                inference_cfg_rate: 0.7
        estimator: !new:flow.DiT
            dim: 32
            depth: 2
            heads: 2
            dim_head: 16
            ff_mult: 2
            static_chunk_size: !ref <chunk_size> * <token_mel_ratio>
""" + VOCODER_YAML.replace("lrelu_slope", "conv_pre_look_right: 4\n    lrelu_slope")
TOKEN2WAV_YAML = (
    """
sample_rate: 24000
flow: !new:flow.Flow
    output_size: 80
    spk_embed_dim: 192
    vocab_size: 6561
    encoder: !new:flow.Encoder
        output_size: 32
        attention_heads: 2
        linear_units: 48
        num_blocks: 1
        num_up_blocks: 1
        pre_lookahead_len: 3
    decoder: !new:flow.Decoder
        inference_cfg_rate: 0.7
        estimator: !new:flow.DiT
            hidden_size: 32
            depth: 2
            num_heads: 2
            head_dim: 16
            mlp_ratio: 2.0
"""
    + VOCODER_YAML
)
