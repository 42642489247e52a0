#!/usr/bin/env python3
"""Makes tiny random checkpoints with the shapes of published models, and golden logits from transformers in float32.

    make_variants.py tests/data/checkpoints [name ...]

Needs torch, transformers and safetensors. The seed depends only on the name, so a second run writes the same files.
"""
import copy
import json
import pathlib
import sys
import tempfile
import zlib

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    Mistral4ForCausalLM,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from arguments import arguments  # noqa: E402
from further_variants import FURTHER, FURTHER_PUBLISHED, as_published  # noqa: E402
from reduce_golden import reduce_case  # noqa: E402

COMMON = {"vocab_size": 128, "max_position_embeddings": 4096, "hidden_act": "silu", "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **COMMON}
QWEN3 = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], **COMMON}
GEMMA3 = {**{key: value for key, value in COMMON.items() if key != "hidden_act"}, "model_type": "gemma3_text",
          "architectures": ["Gemma3ForCausalLM"], "hidden_size": 48, "intermediate_size": 80, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 32, "query_pre_attn_scalar": 20, "sliding_window": 24,
          "hidden_activation": "gelu_pytorch_tanh", "attention_bias": False, "tie_word_embeddings": True,
          "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
                              "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}
GEMMA4 = {**{key: value for key, value in COMMON.items() if key != "hidden_act"}, "model_type": "gemma4_text",
          "architectures": ["Gemma4ForCausalLM"], "hidden_size": 48, "intermediate_size": 64, "num_attention_heads": 4,
          "head_dim": 32, "global_head_dim": 64, "sliding_window": 24, "hidden_activation": "gelu_pytorch_tanh", "attention_bias": False,
          "tie_word_embeddings": True,
          "rope_parameters": {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
                              "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}
SMALL = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
TINY = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
LATENT = {"hidden_size": 32, "intermediate_size": 48, "moe_intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 4, "kv_lora_rank": 18, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 12,
          "tie_word_embeddings": False}
INDEXED = {"q_lora_rank": 20, "index_topk": 12, "index_head_dim": 12, "index_n_heads": 16, "n_routed_experts": 6, "num_experts_per_tok": 2,
           "n_shared_experts": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.8, "attention_bias": False}
PHI3 = {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "hidden_size": 128, "intermediate_size": 80, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 10000.0, "tie_word_embeddings": False, "pad_token_id": 0}
GPT_OSS = {**COMMON, **SMALL, "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "intermediate_size": 64,
           "num_hidden_layers": 2, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 24, "swiglu_limit": 2.0,
           "layer_types": ["sliding_attention", "full_attention"], "attention_bias": True, "rope_theta": 150000.0,
           "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24, "beta_fast": 32.0,
                            "beta_slow": 1.0, "truncate": False}, "tie_word_embeddings": False}
LFM2 = {"pad_token_id": 0, **{key: value for key, value in COMMON.items() if key not in ("hidden_act", "rms_norm_eps")}, "norm_eps": 1e-5, "conv_L_cache": 3,
        "rope_theta": 1000000.0, "tie_word_embeddings": True}
DELTA = {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "num_hidden_layers": 4,
         "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"], "linear_conv_kernel_dim": 4,
         "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0, "partial_rotary_factor": 0.25}}
MAMBA = {"mamba_d_state": 10, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": True, "mamba_proj_bias": False, "mamba_chunk_size": 16, "pad_token_id": 0}
NEMOTRON = {"pad_token_id": 0, **{key: value for key, value in COMMON.items() if key not in ("hidden_act", "rms_norm_eps")}, "model_type": "nemotron_h",
            "architectures": ["NemotronHForCausalLM"], "layer_norm_epsilon": 1e-5, "hidden_size": 32, "num_attention_heads": 2,
            "num_key_value_heads": 1, "head_dim": 20, "intermediate_size": 48, "mamba_num_heads": 4, "mamba_head_dim": 12, "n_groups": 2,
            "ssm_state_size": 10, "conv_kernel": 4, "chunk_size": 16, "use_conv_bias": True, "mlp_hidden_act": "relu2",
            "time_step_min": 1e-6, "residual_in_fp32": False}

VARIANTS = {
    # Biases everywhere, a head size other than hidden size / heads, one KV head per query head, no rope scaling.
    "tiny-llama-bias": {**LLAMA, "hidden_size": 60, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 3,
                        "num_key_value_heads": 3, "head_dim": 40, "attention_bias": True, "mlp_bias": True, "rope_theta": 10000.0,
                        "tie_word_embeddings": False},
    # The widest heads and the largest group of query heads; llama3 scaling without a middle band.
    "tiny-llama-wide": {**LLAMA, "hidden_size": 50, "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 5,
                        "num_key_value_heads": 1, "head_dim": 256, "rope_theta": 500000.0, "tie_word_embeddings": True,
                        "rope_scaling": {"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
                                         "original_max_position_embeddings": 64}},
    # Attention biases with QK norm, head size 128, tied embeddings.
    "tiny-qwen3-bias": {**QWEN3, "hidden_size": 64, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 2,
                        "num_key_value_heads": 1, "head_dim": 128, "attention_bias": True, "rope_theta": 1000000.0,
                        "tie_word_embeddings": True},
    # Dense layers between layers with experts, two experts per token, irregular NoPE layers, short chunks.
    "tiny-llama4-mixed": {**COMMON, "model_type": "llama4_text", "architectures": ["Llama4ForCausalLM"], "hidden_size": 64,
                          "intermediate_size": 32, "intermediate_size_mlp": 96, "num_hidden_layers": 5, "num_attention_heads": 4,
                          "num_key_value_heads": 2, "head_dim": 32, "num_local_experts": 6, "num_experts_per_tok": 2,
                          "interleave_moe_layer_step": 2, "no_rope_layers": [1, 1, 0, 1, 0], "attention_chunk_size": 16,
                          "floor_scale": 8, "attn_scale": 0.3, "attn_temperature_tuning": True, "use_qk_norm": True,
                          "attention_bias": False, "rope_theta": 10000.0, "tie_word_embeddings": False},
    # A dense MLP in the first layer, three experts per token with unnormalized weights, experts in one tensor as in transformers 5.
    "tiny-qwen3-moe-mixed": {**COMMON, "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 64,
                             "intermediate_size": 96, "moe_intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
                             "num_key_value_heads": 2, "head_dim": 32, "num_experts": 6, "num_experts_per_tok": 3,
                             "decoder_sparse_step": 1, "mlp_only_layers": [0], "norm_topk_prob": False, "attention_bias": False,
                             "rope_theta": 1000000.0, "tie_word_embeddings": True},
    # A window in every layer.
    "tiny-mistral-window": {**COMMON, "model_type": "mistral", "architectures": ["MistralForCausalLM"], "hidden_size": 48,
                            "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                            "head_dim": 32, "sliding_window": 24, "rope_theta": 10000.0, "tie_word_embeddings": False},
    # A window in the last layer, biases on q, k and v.
    "tiny-qwen2-window": {**COMMON, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 64,
                          "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
                          "use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1, "rope_theta": 1000000.0,
                          "tie_word_embeddings": True},
    # Three layers have a window and their own rope, the fourth has full attention; the scale of q . k is unusual; embeddings are tied.
    "tiny-gemma3": {**GEMMA3, "num_hidden_layers": 4, "layer_types": ["sliding_attention", "sliding_attention", "full_attention",
                                                                      "sliding_attention"]},
    # Two experts per token, each in its own tensors under block_sparse_moe, as published.
    "tiny-mixtral": {**COMMON, **SMALL, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "intermediate_size": 48,
                     "num_hidden_layers": 2, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None,
                     "rope_theta": 1000000.0, "tie_word_embeddings": False},
    # A gated shared expert of another width, a dense MLP in one layer, unnormalized expert weights.
    "tiny-qwen2-moe": {**COMMON, **SMALL, "model_type": "qwen2_moe", "architectures": ["Qwen2MoeForCausalLM"], "intermediate_size": 96,
                       "moe_intermediate_size": 32, "shared_expert_intermediate_size": 80, "num_hidden_layers": 2, "num_experts": 6,
                       "num_experts_per_tok": 3, "decoder_sparse_step": 1, "mlp_only_layers": [1], "norm_topk_prob": False,
                       "rope_theta": 1000000.0, "tie_word_embeddings": False},
    # Rope on three quarters of each head, a window; contexts so short that the short factors apply.
    "tiny-phi3-partial": {**COMMON, **PHI3, "sliding_window": 24, "partial_rotary_factor": 0.75, "original_max_position_embeddings": 2048,
                          "rope_scaling": {"type": "longrope", "short_factor": [1.0 + 0.1 * i for i in range(12)],
                                           "long_factor": [1.0 + i for i in range(12)]}},
    # Contexts beyond the original length, so the long factors apply; rope on whole heads.
    "tiny-phi3-long": {**COMMON, **PHI3, "sliding_window": None, "original_max_position_embeddings": 32,
                       "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 16,
                                        "long_factor": [1.0 + 0.5 * i for i in range(16)]}},
    # Norms only after sublayers; q and k norms over all heads together.
    "tiny-olmo2": {**COMMON, **SMALL, "model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"], "intermediate_size": 80,
                   "num_hidden_layers": 2, "rope_theta": 10000.0, "tie_word_embeddings": False},
    # Like tiny-olmo2, with windows; layers without a window have YaRN.
    "tiny-olmo3": {**COMMON, **SMALL, "model_type": "olmo3", "architectures": ["Olmo3ForCausalLM"], "intermediate_size": 80,
                   "num_hidden_layers": 3, "sliding_window": 24, "rope_theta": 500000.0, "tie_word_embeddings": False,
                   "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                   "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24}},
    # Multipliers everywhere.
    "tiny-granite": {**COMMON, **SMALL, "model_type": "granite", "architectures": ["GraniteForCausalLM"], "intermediate_size": 80,
                     "num_hidden_layers": 2, "rope_theta": 10000.0, "tie_word_embeddings": True, "embedding_multiplier": 12.0,
                     "residual_multiplier": 0.22, "attention_multiplier": 0.05, "logits_scaling": 0.5, "attention_bias": False},
    # A dense Granite 4: other tensor names, gate and up in one tensor.
    "tiny-granite4": {**COMMON, **SMALL, "model_type": "granitemoehybrid", "architectures": ["GraniteMoeHybridForCausalLM"],
                      "intermediate_size": 64, "shared_intermediate_size": 80, "num_hidden_layers": 2, "num_local_experts": 0,
                      "num_experts_per_tok": 0, "layer_types": ["attention", "attention"], "position_embedding_type": "rope",
                      "rope_theta": 10000.0, "tie_word_embeddings": True, "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
                      "attention_multiplier": 0.05, "logits_scaling": 0.5},
    # A Granite 4 with experts in addition to the MLP.
    "tiny-granite4-experts": {**COMMON, **TINY, "model_type": "granitemoehybrid", "architectures": ["GraniteMoeHybridForCausalLM"],
                              "intermediate_size": 24, "shared_intermediate_size": 40, "num_hidden_layers": 2, "num_local_experts": 6,
                              "num_experts_per_tok": 3, "layer_types": ["attention", "attention"], "position_embedding_type": "rope", "mamba_n_heads": 4,
                              "rope_theta": 10000.0, "tie_word_embeddings": True, "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
                              "attention_multiplier": 0.05, "logits_scaling": 0.5},
    # A head size that is not a multiple of a vector's width, GELU by erf, a partial factor that is ignored, an old spelling of the class,
    # no theta.
    "tiny-llama-narrow": {**LLAMA, "architectures": ["LLaMAForCausalLM"], "hidden_size": 36, "intermediate_size": 44,
                          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 18, "hidden_act": "gelu",
                          "partial_rotary_factor": 0.5, "tie_word_embeddings": False},
    # The narrowest heads of published test models, with QK norm.
    "tiny-qwen3-narrow": {**QWEN3, "hidden_size": 16, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                          "num_key_value_heads": 4, "head_dim": 4, "rope_theta": 5000000, "tie_word_embeddings": True},
    # A layer without rope.
    "tiny-smollm3": {**COMMON, **SMALL, "model_type": "smollm3", "architectures": ["SmolLM3ForCausalLM"], "intermediate_size": 80,
                     "num_hidden_layers": 3, "no_rope_layers": [1, 0, 1], "use_sliding_window": False, "pad_token_id": 0, "rope_theta": 50000.0,
                     "tie_word_embeddings": True},
    # Soft caps that take effect, a window in the first layer.
    "tiny-gemma2": {**{key: value for key, value in GEMMA3.items() if key != "rope_parameters"}, "model_type": "gemma2",
                    "architectures": ["Gemma2ForCausalLM"], "num_hidden_layers": 2, "attn_logit_softcapping": 3.0,
                    "final_logit_softcapping": 8.0, "rope_theta": 10000.0},
    # Per-layer embeddings; the last three layers share keys and values of earlier layers and have wider MLPs.
    "tiny-gemma4-shared": {**GEMMA4, "num_hidden_layers": 5, "num_key_value_heads": 1, "num_kv_shared_layers": 3,
                           "use_double_wide_mlp": True, "hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 128,
                           "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
                                           "full_attention"]},
    # Experts in addition to the MLP, values equal to keys, the widest heads in layers with full attention, a soft cap on the logits.
    "tiny-gemma4-experts": {**GEMMA4, "num_hidden_layers": 3, "num_attention_heads": 2, "global_head_dim": 512, "num_key_value_heads": 2, "num_global_key_value_heads": 1,
                            "attention_k_eq_v": True, "hidden_size_per_layer_input": 0, "enable_moe_block": True, "num_experts": 6,
                            "top_k_experts": 2, "moe_intermediate_size": 32, "final_logit_softcapping": 8.0,
                            "layer_types": ["sliding_attention", "full_attention", "full_attention"]},
    # Rope on half of each head, a dense MLP in the first layer, a bias for the choice of experts, a shared expert.
    "tiny-glm4-moe": {**COMMON, **SMALL, "model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"], "intermediate_size": 96,
                      "moe_intermediate_size": 48, "num_hidden_layers": 2, "n_routed_experts": 6, "num_experts_per_tok": 2,
                      "n_shared_experts": 1, "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.5,
                      "n_group": 1, "topk_group": 1, "use_qk_norm": True, "attention_bias": True, "partial_rotary_factor": 0.5,
                      "rope_theta": 10000.0, "tie_word_embeddings": False},
    # Experts chosen in groups.
    "tiny-glm4-moe-groups": {**COMMON, **TINY, "model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"],
                             "intermediate_size": 48, "moe_intermediate_size": 16, "num_hidden_layers": 2, "n_routed_experts": 12,
                             "num_experts_per_tok": 3, "n_shared_experts": 1, "first_k_dense_replace": 0, "norm_topk_prob": True,
                             "routed_scaling_factor": 2.5, "n_group": 4, "topk_group": 2, "use_qk_norm": False, "attention_bias": False,
                             "partial_rotary_factor": 0.5, "rope_theta": 10000.0, "tie_word_embeddings": False},
    # Convolutions of three taps; a number of channels that is no multiple of a vector's width; an MLP width rounded to a multiple of 16.
    "tiny-lfm2": {**LFM2, "model_type": "lfm2", "architectures": ["Lfm2ForCausalLM"], "hidden_size": 60, "intermediate_size": 130,
                  "block_multiple_of": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "conv_bias": False,
                  "layer_types": ["conv", "full_attention", "conv", "conv"]},
    # Every kind of layer; rope on half of each head in the layer with full attention.
    "tiny-lfm3": {**{key: value for key, value in LFM2.items() if key != "rope_theta"}, "model_type": "lfm3", "architectures": ["Lfm3ForCausalLM"], "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4,
                  "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 4, "conv_L_cache": 7, "sliding_window": 24,
                  "layer_types": ["conv", "sliding_attention", "full_attention", "conv"],
                  "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                                      "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.5}}},
    # Biases everywhere, experts after a layer with a dense MLP, attention in the last layer.
    "tiny-lfm2-moe": {**LFM2, **TINY, "model_type": "lfm2_moe", "architectures": ["Lfm2MoeForCausalLM"], "intermediate_size": 48,
                      "moe_intermediate_size": 24, "num_hidden_layers": 4, "num_dense_layers": 1, "num_experts": 5, "num_experts_per_tok": 2,
                      "conv_bias": True, "use_expert_bias": True, "norm_topk_prob": True, "routed_scaling_factor": 1.5,
                      "layer_types": ["conv", "conv", "conv", "full_attention"]},
    # Two value heads per key head, unusual head widths, experts and a shared expert.
    "tiny-qwen3-next": {**COMMON, **DELTA, "model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"], "intermediate_size": 48,
                        "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "num_experts": 6, "num_experts_per_tok": 2,
                        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 12, "linear_value_head_dim": 20,
                        "tie_word_embeddings": False},
    # A model of text and images; the text configuration is a nested object.
    "tiny-qwen3.5": {**COMMON, **DELTA, "model_type": "qwen3_5_text", "architectures": ["Qwen3_5ForConditionalGeneration"],
                     "intermediate_size": 80, "linear_num_key_heads": 4, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
                     "linear_value_head_dim": 16, "tie_word_embeddings": True},
    # Separate convolutions for q, k and v, update rates up to 2, norms after attention but before the other sublayers.
    "tiny-olmo-hybrid": {**COMMON, "pad_token_id": 0, "model_type": "olmo_hybrid", "architectures": ["OlmoHybridForCausalLM"], "hidden_size": 32,
                         "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 2,
                         "layer_types": ["linear_attention", "linear_attention", "full_attention"], "linear_num_key_heads": 2,
                         "linear_num_value_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 32, "rope_theta": 10000.0,
                         "tie_word_embeddings": False},
    # Each element of a key has its own decay. Decays and z are computed by two products each. Latent attention without rope.
    "tiny-kimi-linear": {"vocab_size": 128, "hidden_act": "silu", "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
                         "model_type": "kimi_linear", "architectures": ["KimiLinearForCausalLM"], "model_max_length": 4096, "hidden_size": 32,
                         "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 2,
                         "layer_types": ["linear_attention", "full_attention", "linear_attention"],
                         "mlp_layer_types": ["dense", "sparse", "sparse"], "linear_num_heads": 2, "linear_head_dim": 16,
                         "linear_conv_kernel_dim": 4, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24,
                         "num_experts": 4, "num_experts_per_token": 2, "moe_intermediate_size": 16, "num_shared_experts": 1,
                         "tie_word_embeddings": False},
    # Bounded decays computed by one product, and latent attention with gated heads and rope.
    "tiny-bailing-hybrid": {"vocab_size": 128, "hidden_act": "silu", "rms_norm_eps": 1e-6, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
                            "model_type": "bailing_hybrid", "architectures": ["BailingHybridForCausalLM"], "model_max_length": 4096,
                            "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 2,
                            "num_key_value_heads": 2, "head_dim": 16, "layer_group_size": 2, "first_k_dense_replace": 1,
                            "q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24,
                            "num_experts": 4, "num_experts_per_token": 2, "num_expert_group": 2, "topk_group": 1, "moe_intermediate_size": 16,
                            "num_shared_experts": 1, "num_nextn_predict_layers": 0, "rope_theta": 10000.0, "tie_word_embeddings": False},
    # State space layers with one group, a norm over all heads together, experts in addition to the MLP, no rope.
    "tiny-granite4-hybrid": {**COMMON, "model_type": "granitemoehybrid", "architectures": ["GraniteMoeHybridForCausalLM"], "hidden_size": 32,
                             "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 24, "shared_intermediate_size": 40,
                             "num_hidden_layers": 4, "num_local_experts": 5, "num_experts_per_tok": 2,
                             "layer_types": ["mamba", "mamba", "attention", "mamba"], "position_embedding_type": "nope", **MAMBA,
                             "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1, "rope_theta": 10000.0, "tie_word_embeddings": True,
                             "embedding_multiplier": 3.0, "residual_multiplier": 0.4, "attention_multiplier": 0.1, "logits_scaling": 0.5},
    # State space layers with two groups, rope on half of each head.
    "tiny-bamba": {**COMMON, "model_type": "bamba", "architectures": ["BambaForCausalLM"], "hidden_size": 32, "num_attention_heads": 2,
                   "num_key_value_heads": 1, "intermediate_size": 48, "num_hidden_layers": 3, "attn_layer_indices": [1], **MAMBA,
                   "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 2, "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
                   "tie_word_embeddings": False},
    # Attention and state space in parallel, multipliers everywhere.
    "tiny-falcon-h1": {**COMMON, "model_type": "falcon_h1", "architectures": ["FalconH1ForCausalLM"], "hidden_size": 32, "head_dim": 20,
                       "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 48, "num_hidden_layers": 2, **MAMBA,
                       "mamba_d_ssm": 48, "mamba_n_heads": 4, "mamba_d_head": 12, "mamba_n_groups": 2, "mamba_rms_norm": False,
                       "attention_in_multiplier": 1.1, "attention_out_multiplier": 0.9, "embedding_multiplier": 1.6, "key_multiplier": 0.7,
                       "lm_head_multiplier": 0.8, "mlp_multipliers": [0.8, 0.6], "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.6,
                       "ssm_multipliers": [0.4, 0.3, 0.5, 0.7, 0.9], "rope_theta": 100000.0, "tie_word_embeddings": False},
    # Layers with a single sublayer, squared ReLU without a gate, the old field for the kinds of layers.
    "tiny-nemotron-h": {**NEMOTRON, "hybrid_override_pattern": "M-M*M-", "tie_word_embeddings": False},
    # Experts with squared ReLU.
    "tiny-nemotron-h-moe": {**NEMOTRON, "layers_block_type": ["mamba", "moe", "attention", "moe"], "moe_intermediate_size": 24,
                            "moe_shared_expert_intermediate_size": 40, "n_routed_experts": 5, "num_experts_per_tok": 2,
                            "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
                            "tie_word_embeddings": False},
    # The rotated part of a head is an odd number, which is rounded up.
    "tiny-glm4-moe-odd": {**COMMON, **TINY, "head_dim": 42, "model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"],
                          "intermediate_size": 48, "moe_intermediate_size": 16, "num_hidden_layers": 2, "n_routed_experts": 4,
                          "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1, "norm_topk_prob": True,
                          "routed_scaling_factor": 1.5, "n_group": 1, "topk_group": 1, "use_qk_norm": False, "attention_bias": False,
                          "partial_rotary_factor": 0.5, "rope_theta": 10000.0, "tie_word_embeddings": False},
    # Experts in BF16, and in MXFP4.
    "tiny-gpt-oss": GPT_OSS,
    "tiny-gpt-oss-mxfp4": {**GPT_OSS, "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}},
    # The text part of a model of text and images, with temperature tuning by position.
    "tiny-ministral3": {**COMMON, **SMALL, "model_type": "ministral3", "architectures": ["Mistral3ForConditionalGeneration"],
                        "intermediate_size": 80, "num_hidden_layers": 2, "sliding_window": None, "tie_word_embeddings": False,
                        "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24,
                                            "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                                            "rope_theta": 10000.0, "llama_4_scaling_beta": 0.4}},
    # Complete latent attention, with YaRN that scales the scores up, a dense MLP in the first layer, groups of experts ranked by the sum of
    # their two best scores.
    "tiny-deepseek-v3": {**COMMON, **LATENT, "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "q_lora_rank": 20,
                         "n_routed_experts": 12, "num_experts_per_tok": 3, "n_shared_experts": 1, "first_k_dense_replace": 1,
                         "n_group": 4, "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "attention_bias": True,
                         "num_nextn_predict_layers": 0,
                         "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                             "mscale": 0.7, "mscale_all_dim": 1.0, "original_max_position_embeddings": 24}},
    # q is computed directly from the hidden rows; softmax routing in groups ranked by their best expert, two shared experts.
    "tiny-deepseek-v2": {**COMMON, **LATENT, "model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"], "q_lora_rank": None,
                         "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 2, "first_k_dense_replace": 0,
                         "n_group": 4, "topk_group": 2, "topk_method": "group_limited_greedy", "norm_topk_prob": False,
                         "routed_scaling_factor": 1.5, "rope_theta": 10000.0},
    # q is computed directly from the hidden rows; no groups; YaRN and the numbers of experts have the published names.
    "tiny-sarvam-mla": {**COMMON, **LATENT, "model_type": "sarvam_mla", "architectures": ["SarvamMLAForCausalLM"], "q_lora_rank": None,
                        "num_experts": 6, "num_experts_per_tok": 2, "num_shared_experts": 1, "first_k_dense_replace": 1, "rope_theta": 10000.0,
                        "rope_scaling": {"type": "deepseek_yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
                                         "mscale_all_dim": 1.0, "original_max_position_embeddings": 24}},
    # Latent attention without experts.
    "tiny-youtu": {**COMMON, **{key: value for key, value in LATENT.items() if key != "moe_intermediate_size"}, "model_type": "youtu",
                   "architectures": ["YoutuForCausalLM"], "q_lora_rank": 20, "rope_theta": 10000.0, "tie_word_embeddings": True},
    # Attention sinks and per-head norms; rope and windows, except in the first two layers and the last; sigmoid routing.
    "tiny-flint": {**COMMON, **TINY, "model_type": "flint", "architectures": ["FlintForCausalLM"], "intermediate_size": 48, "num_hidden_layers": 4,
                   "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24, "num_experts": 6, "num_experts_per_tok": 2,
                   "sliding_window": 24, "rope_theta": 10000.0, "tie_word_embeddings": False},
    # Latent attention, without groups of experts.
    "tiny-glm4-lite": {**COMMON, **LATENT, "model_type": "glm4_moe_lite", "architectures": ["Glm4MoeLiteForCausalLM"], "q_lora_rank": 20,
                       "n_routed_experts": 6, "num_experts_per_tok": 2, "n_shared_experts": 1, "mlp_layer_types": ["dense", "sparse"],
                       "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.8, "attention_bias": False,
                       "num_nextn_predict_layers": 0, "rope_theta": 1000000.0},
    # The text part of a model of text and images: experts in one tensor, temperature tuning by position.
    "tiny-mistral4": {**COMMON, **LATENT, "model_type": "mistral4", "architectures": ["Mistral3ForConditionalGeneration"], "q_lora_rank": 20,
                      "n_routed_experts": 6, "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 0, "n_group": 1,
                      "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.0,
                      "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                          "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 24,
                                          "llama_4_scaling_beta": 0.4, "partial_rotary_factor": 0.5}},
    # An indexer in each layer, its keys with half-split rope; prompts are longer than the number of positions that it selects.
    "tiny-deepseek-v32": {**COMMON, **LATENT, **INDEXED, "model_type": "deepseek_v32", "architectures": ["DeepseekV32ForCausalLM"],
                          "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
                          "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                              "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 24}},
    # An indexer shared by two layers, with interleaved rope.
    "tiny-glm-dsa": {**COMMON, **LATENT, **INDEXED, "model_type": "glm_moe_dsa", "architectures": ["GlmMoeDsaForCausalLM"],
                     "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "num_hidden_layers": 3,
                     "indexer_types": ["full", "full", "shared"], "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    # Four residual streams; every kind of layer; prompts are longer than the window, and have more compressed entries than the indexer
    # selects.
    "tiny-deepseek-v4": {**COMMON, "model_type": "deepseek_v4", "architectures": ["DeepseekV4ForCausalLM"], "hidden_size": 32,
                         "moe_intermediate_size": 16, "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 1,
                         "head_dim": 32, "qk_rope_head_dim": 8, "q_lora_rank": 20, "o_groups": 2, "o_lora_rank": 12,
                         "sliding_window": 12, "index_n_heads": 16, "index_head_dim": 12, "index_topk": 5, "n_routed_experts": 6,
                         "num_experts_per_tok": 2, "routed_scaling_factor": 1.5, "swiglu_limit": 0.8, "rope_theta": 10000.0,
                         "compress_rope_theta": 40000.0, "hc_mult": 4, "num_nextn_predict_layers": 1,
                         "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 32},
                         "layer_types": ["sliding_attention", "heavily_compressed_attention", "compressed_sparse_attention",
                                         "compressed_sparse_attention", "heavily_compressed_attention"],
                         "mlp_layer_types": ["hash_moe", "hash_moe", "moe", "moe", "moe"], "attention_bias": False,
                         "tie_word_embeddings": False,
                         "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                             "original_max_position_embeddings": 24}},
    # Half-split rope; multipliers on embeddings, sublayers and logits.
    "tiny-minicpm3": {**COMMON, **LATENT, "model_type": "minicpm3", "architectures": ["MiniCPM3ForCausalLM"], "q_lora_rank": 20,
                      "scale_emb": 3, "scale_depth": 1.4, "dim_model_base": 16, "rope_theta": 10000.0, "tie_word_embeddings": True},
    # Partial rope with the published spelling of its key, a norm over all heads together, a bias for the choice of experts.
    "tiny-minimax-m2": {**COMMON, **TINY, "model_type": "minimax_m2", "architectures": ["MiniMaxM2ForCausalLM"], "intermediate_size": 24,
                        "num_hidden_layers": 2, "num_local_experts": 6, "num_experts_per_tok": 3, "rotary_dim": 12, "rope_theta": 10000.0,
                        "tie_word_embeddings": False},
    # Per-head norms follow rope, whose base is raised by alpha; there are biases.
    "tiny-hunyuan": {**COMMON, **TINY, "model_type": "hunyuan_v1_dense", "architectures": ["HunYuanDenseV1ForCausalLM"],
                     "intermediate_size": 48, "num_hidden_layers": 2, "attention_bias": True, "tie_word_embeddings": True,
                     "rope_parameters": {"rope_type": "dynamic", "alpha": 50.0, "factor": 1.0, "rope_theta": 10000.0}},
    # A different number of experts per token in each layer.
    "tiny-hunyuan-moe": {**COMMON, **TINY, "model_type": "hunyuan_v1_moe", "architectures": ["HunYuanMoEV1ForCausalLM"],
                         "intermediate_size": 24, "num_hidden_layers": 2, "num_experts": 6, "moe_topk": [3, 2], "rope_theta": 10000.0,
                         "tie_word_embeddings": False},
    "tiny-hy3": {**COMMON, **TINY, "model_type": "hy_v3", "architectures": ["HYV3ForCausalLM"], "intermediate_size": 48,
                 "moe_intermediate_size": 16, "num_hidden_layers": 2, "num_experts": 6, "num_experts_per_tok": 2, "num_shared_experts": 2,
                 "router_scaling_factor": 1.7, "rope_theta": 10000.0, "tie_word_embeddings": False},
    "tiny-ernie": {**COMMON, **TINY, "model_type": "ernie4_5", "architectures": ["Ernie4_5ForCausalLM"], "intermediate_size": 48,
                   "num_hidden_layers": 2, "use_bias": True, "rope_theta": 10000.0, "tie_word_embeddings": False},
    # Every second layer has experts and a shared expert; there are no biases.
    "tiny-ernie-moe": {**COMMON, "hidden_size": 48, "num_attention_heads": 3, "num_key_value_heads": 1, "model_type": "ernie4_5_moe",
                       "architectures": ["Ernie4_5_MoeForCausalLM"], "intermediate_size": 40, "moe_intermediate_size": 16,
                       "num_hidden_layers": 3, "moe_num_experts": 6, "moe_k": 2, "moe_num_shared_experts": 1, "moe_layer_start_index": 1,
                       "moe_layer_end_index": 1, "moe_layer_interval": 2, "use_bias": False, "rope_theta": 10000.0,
                       "tie_word_embeddings": True},
    "tiny-seed-oss": {**COMMON, **TINY, "model_type": "seed_oss", "architectures": ["SeedOssForCausalLM"], "intermediate_size": 48,
                      "num_hidden_layers": 2, "attention_bias": True, "attention_out_bias": True, "rope_theta": 10000.0,
                      "tie_word_embeddings": False},
    # One model with a window in two of three layers and no rope in the third; one without windows, with rope everywhere.
    "tiny-exaone4": {**COMMON, **TINY, "model_type": "exaone4", "architectures": ["Exaone4ForCausalLM"], "intermediate_size": 48,
                     "num_hidden_layers": 3, "sliding_window": 20, "sliding_window_pattern": 3, "rope_theta": 10000.0,
                     "tie_word_embeddings": False},
    "tiny-exaone4-full": {**COMMON, **TINY, "model_type": "exaone4", "architectures": ["Exaone4ForCausalLM"], "intermediate_size": 48,
                          "num_hidden_layers": 2, "sliding_window": None, "layer_types": ["full_attention"] * 2, "rope_theta": 10000.0,
                          "tie_word_embeddings": True},
    "tiny-exaone-moe": {**COMMON, **TINY, "model_type": "exaone_moe", "architectures": ["ExaoneMoeForCausalLM"], "intermediate_size": 48,
                        "moe_intermediate_size": 16, "num_hidden_layers": 3, "num_experts": 8, "num_experts_per_tok": 2,
                        "num_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1, "sliding_window": 20,
                        "sliding_window_pattern": 2, "rope_theta": 10000.0, "tie_word_embeddings": False},
    "tiny-afmoe": {**COMMON, **TINY, "model_type": "afmoe", "architectures": ["AfmoeForCausalLM"], "intermediate_size": 48,
                   "moe_intermediate_size": 16, "num_hidden_layers": 3, "num_dense_layers": 1, "num_experts": 6, "num_experts_per_tok": 3,
                   "num_shared_experts": 1, "route_scale": 1.6, "global_attn_every_n_layers": 2, "sliding_window": 20, "mup_enabled": True,
                   "rope_theta": 10000.0, "tie_word_embeddings": False},
    # A dense MLP in one layer; YaRN in layers with full attention.
    "tiny-mellum": {**COMMON, **TINY, "model_type": "mellum", "architectures": ["MellumForCausalLM"], "intermediate_size": 48,
                    "moe_intermediate_size": 16, "num_hidden_layers": 3, "num_local_experts": 6, "num_experts_per_tok": 2,
                    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "mlp_layer_types": ["sparse", "sparse", "dense"],
                    "sliding_window": 20, "tie_word_embeddings": True,
                    "rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 500000.0,
                                                           "original_max_position_embeddings": 24},
                                        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
    "tiny-glm": {**COMMON, **TINY, "pad_token_id": 0, "model_type": "glm", "architectures": ["GlmForCausalLM"], "intermediate_size": 48, "num_hidden_layers": 2,
                 "attention_bias": True, "partial_rotary_factor": 0.5, "rope_theta": 10000.0, "tie_word_embeddings": False},
    "tiny-glm4": {**COMMON, **TINY, "pad_token_id": 0, "model_type": "glm4", "architectures": ["Glm4ForCausalLM"], "intermediate_size": 48,
                  "num_hidden_layers": 2, "attention_bias": False, "partial_rotary_factor": 0.75, "rope_theta": 10000.0,
                  "tie_word_embeddings": True},
    "tiny-granitemoe": {**COMMON, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "model_type": "granitemoe",
                        "architectures": ["GraniteMoeForCausalLM"], "intermediate_size": 24, "num_hidden_layers": 2, "num_local_experts": 6,
                        "num_experts_per_tok": 3, "rope_theta": 10000.0, "tie_word_embeddings": True, "embedding_multiplier": 12.0,
                        "residual_multiplier": 0.22, "attention_multiplier": 0.05, "logits_scaling": 0.5},
    "tiny-granitemoe-shared": {**COMMON, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
                               "model_type": "granitemoeshared", "architectures": ["GraniteMoeSharedForCausalLM"], "intermediate_size": 24,
                               "shared_intermediate_size": 40, "num_hidden_layers": 2, "num_local_experts": 6, "num_experts_per_tok": 2,
                               "rope_theta": 10000.0, "tie_word_embeddings": False, "embedding_multiplier": 12.0,
                               "residual_multiplier": 0.22, "attention_multiplier": 0.05, "logits_scaling": 0.5},
    "tiny-olmoe": {**COMMON, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "model_type": "olmoe",
                   "architectures": ["OlmoeForCausalLM"], "intermediate_size": 24, "num_hidden_layers": 2, "num_experts": 6,
                   "num_experts_per_tok": 3, "norm_topk_prob": True, "rope_theta": 10000.0, "tie_word_embeddings": False},
    "tiny-gemma": {**{key: value for key, value in COMMON.items() if key != "hidden_act"}, **TINY, "num_key_value_heads": 1,
                   "model_type": "gemma", "architectures": ["GemmaForCausalLM"], "intermediate_size": 48, "num_hidden_layers": 2,
                   "hidden_act": "gelu_pytorch_tanh", "rope_theta": 10000.0, "tie_word_embeddings": True},
    # A window, GELU by erf.
    "tiny-starcoder2": {**{key: value for key, value in COMMON.items() if key not in ("rms_norm_eps", "hidden_act")}, "hidden_size": 64,
                        "num_attention_heads": 4, "num_key_value_heads": 2, "model_type": "starcoder2",
                        "architectures": ["Starcoder2ForCausalLM"], "intermediate_size": 80, "num_hidden_layers": 2, "norm_epsilon": 1e-5,
                        "hidden_act": "gelu", "use_bias": True, "sliding_window": 20, "rope_theta": 10000.0, "tie_word_embeddings": False},
    "tiny-cohere": {**{key: value for key, value in COMMON.items() if key != "rms_norm_eps"}, "hidden_size": 64, "num_attention_heads": 4,
                    "num_key_value_heads": 2, "model_type": "cohere", "architectures": ["CohereForCausalLM"], "intermediate_size": 48,
                    "num_hidden_layers": 2, "layer_norm_eps": 1e-5, "logit_scale": 1.5, "attention_bias": True, "rope_theta": 10000.0,
                    "tie_word_embeddings": True},
    "tiny-cohere2": {**{key: value for key, value in COMMON.items() if key != "rms_norm_eps"}, "hidden_size": 64, "num_attention_heads": 4,
                     "num_key_value_heads": 2, "model_type": "cohere2", "architectures": ["Cohere2ForCausalLM"], "intermediate_size": 48,
                     "num_hidden_layers": 3, "layer_norm_eps": 1e-5, "logit_scale": 1.5, "sliding_window": 20, "sliding_window_pattern": 2,
                     "rope_theta": 10000.0, "tie_word_embeddings": False},
    # Nearly equal router logits.
    "tiny-phimoe": {**COMMON, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "model_type": "phimoe",
                    "architectures": ["PhimoeForCausalLM"], "intermediate_size": 24, "num_hidden_layers": 2, "num_local_experts": 6,
                    "num_experts_per_tok": 2, "router_jitter_noise": 0.2, "attention_bias": True, "lm_head_bias": True,
                    "sliding_window": 20, "rope_theta": 10000.0, "tie_word_embeddings": False},
    "tiny-apertus": {**{key: value for key, value in COMMON.items() if key != "hidden_act"}, "hidden_size": 64, "num_attention_heads": 4,
                     "num_key_value_heads": 2, "model_type": "apertus", "architectures": ["ApertusForCausalLM"], "intermediate_size": 80,
                     "num_hidden_layers": 2, "hidden_act": "xielu", "attention_bias": True, "tie_word_embeddings": False,
                     "rope_parameters": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                         "original_max_position_embeddings": 32, "rope_theta": 10000.0}},
    # Groups of experts, a window in the last layer.
    "tiny-dots1": {**COMMON, **TINY, "model_type": "dots1", "architectures": ["Dots1ForCausalLM"], "intermediate_size": 48,
                   "moe_intermediate_size": 16, "num_hidden_layers": 2, "n_routed_experts": 8, "n_shared_experts": 2,
                   "num_experts_per_tok": 3, "first_k_dense_replace": 1, "n_group": 4, "topk_group": 2, "norm_topk_prob": False,
                   "routed_scaling_factor": 1.3, "sliding_window": 20, "max_window_layers": 1, "rope_theta": 10000.0,
                   "tie_word_embeddings": False},
    # Biases with unusual names; contexts longer than in training.
    "tiny-internlm3": {**COMMON, **TINY, "model_type": "internlm3", "architectures": ["InternLM3ForCausalLM"], "intermediate_size": 48,
                       "num_hidden_layers": 2, "qkv_bias": True, "bias": True, "tie_word_embeddings": False, "max_position_embeddings": 24,
                       "rope_parameters": {"rope_type": "dynamic", "factor": 6.0, "rope_theta": 10000.0}},
    "tiny-arcee": {**{key: value for key, value in COMMON.items() if key != "hidden_act"}, **TINY, "model_type": "arcee",
                   "architectures": ["ArceeForCausalLM"], "intermediate_size": 80, "num_hidden_layers": 2, "hidden_act": "relu2",
                   "mlp_bias": True, "rope_theta": 10000.0, "tie_word_embeddings": True},
    "tiny-jais2": {**{key: value for key, value in COMMON.items() if key not in ("rms_norm_eps", "hidden_act")}, **TINY, "model_type": "jais2",
                   "architectures": ["Jais2ForCausalLM"], "intermediate_size": 80, "num_hidden_layers": 2, "layer_norm_eps": 1e-5,
                   "hidden_act": "relu2", "attention_bias": True, "mlp_bias": True, "rope_theta": 10000.0, "tie_word_embeddings": False},
    "tiny-nemotron": {**{key: value for key, value in COMMON.items() if key not in ("rms_norm_eps", "hidden_act")}, **TINY,
                      "model_type": "nemotron", "architectures": ["NemotronForCausalLM"], "intermediate_size": 80, "num_hidden_layers": 2,
                      "norm_eps": 1e-5, "hidden_act": "relu2", "partial_rotary_factor": 0.5, "rope_theta": 10000.0,
                      "tie_word_embeddings": False},
    "tiny-helium": {**COMMON, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "model_type": "helium",
                    "architectures": ["HeliumForCausalLM"], "intermediate_size": 48, "num_hidden_layers": 2, "attention_bias": True,
                    "rope_theta": 10000.0, "tie_word_embeddings": False},
    "tiny-cwm": {**COMMON, **TINY, "model_type": "cwm", "architectures": ["CwmForCausalLM"], "intermediate_size": 48, "num_hidden_layers": 3,
                 "sliding_window": 20, "rope_theta": 10000.0, "tie_word_embeddings": False,
                 "rope_scaling": {"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                  "original_max_position_embeddings": 64}},
    "tiny-iquestcoder": {**COMMON, **TINY, "model_type": "iquestcoder", "architectures": ["IQuestCoderForCausalLM"], "intermediate_size": 48,
                         "num_hidden_layers": 1, "rope_theta": 10000.0, "tie_word_embeddings": True},
    # Unusual tensor names.
    "tiny-exaone": {**{key: value for key, value in COMMON.items() if key not in ("rms_norm_eps", "hidden_act")}, **TINY,
                    "model_type": "exaone", "architectures": ["ExaoneForCausalLM"], "intermediate_size": 48, "num_layers": 2,
                    "layer_norm_epsilon": 1e-5, "activation_function": "silu", "rope_theta": 10000.0, "tie_word_embeddings": False},
    # Some layers have their own rope, some none.
    "tiny-granite-swa": {**COMMON, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "model_type": "granite_swa",
                         "architectures": ["GraniteSWAForCausalLM"], "intermediate_size": 48, "num_hidden_layers": 3, "sliding_window": 20,
                         "layer_rope_theta": [0, 10000.0, 500.0], "rope_theta": 10000.0, "tie_word_embeddings": True,
                         "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.05, "logits_scaling": 0.5},
    "tiny-granitemoe-swa": {**COMMON, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "model_type": "granitemoe_swa",
                            "architectures": ["GraniteMoeSWAForCausalLM"], "intermediate_size": 24, "shared_intermediate_size": 40,
                            "num_hidden_layers": 2, "num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 20,
                            "rope_theta": 10000.0, "tie_word_embeddings": False, "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
                            "attention_multiplier": 0.05, "logits_scaling": 0.5},
    "tiny-hyperclovax": {**COMMON, **TINY, "model_type": "hyperclovax", "architectures": ["HyperCLOVAXForCausalLM"], "intermediate_size": 48,
                         "num_hidden_layers": 2, "rope_theta": 10000.0, "tie_word_embeddings": False, "embedding_multiplier": 2.0,
                         "residual_multiplier": 0.5, "logits_scaling": 1.5},
    "tiny-flex-olmo": {**COMMON, **TINY, "pad_token_id": 0, "model_type": "flex_olmo", "architectures": ["FlexOlmoForCausalLM"],
                       "intermediate_size": 24, "num_hidden_layers": 2, "num_experts": 6, "num_experts_per_tok": 3, "rope_theta": 10000.0,
                       "tie_word_embeddings": False},
    "tiny-olmo": {**{key: value for key, value in COMMON.items() if key != "rms_norm_eps"}, "hidden_size": 64, "num_attention_heads": 4,
                  "num_key_value_heads": 2, "model_type": "olmo", "architectures": ["OlmoForCausalLM"], "intermediate_size": 48,
                  "num_hidden_layers": 2, "rope_theta": 10000.0, "tie_word_embeddings": True},
    "tiny-solar-open": {**COMMON, **TINY, "model_type": "solar_open", "architectures": ["SolarOpenForCausalLM"], "moe_intermediate_size": 16,
                        "num_hidden_layers": 2, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 2,
                        "topk_group": 1, "attention_bias": True, "rope_theta": 10000.0, "tie_word_embeddings": False},
    "tiny-sarvam-moe": {**COMMON, **TINY, "model_type": "sarvam_moe", "architectures": ["Glm4MoeForCausalLM"], "intermediate_size": 48,
                        "moe_intermediate_size": 16, "num_hidden_layers": 2, "n_routed_experts": 6, "num_experts_per_tok": 2,
                        "rope_theta": 10000.0, "tie_word_embeddings": False},
    "tiny-vaultgemma": {**{key: value for key, value in GEMMA3.items() if key != "rope_parameters"}, "model_type": "vaultgemma",
                        "architectures": ["VaultGemmaForCausalLM"], "num_hidden_layers": 2, "attn_logit_softcapping": 3.0,
                        "final_logit_softcapping": 8.0, "rope_theta": 10000.0},
    # q, k and v interleaved by head in one tensor; older names of the rope settings.
    "tiny-gpt-neox": {**{key: value for key, value in COMMON.items() if key not in ("rms_norm_eps", "hidden_act")}, "hidden_size": 64,
                      "num_attention_heads": 4, "model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "intermediate_size": 80,
                      "num_hidden_layers": 2, "layer_norm_eps": 1e-5, "hidden_act": "gelu", "rotary_pct": 0.5, "rotary_emb_base": 20000,
                      "use_parallel_residual": True, "tie_word_embeddings": False},
    # One model with grouped KV heads and separate norms for attention and MLP; one with a single KV head and a joint norm.
    "tiny-falcon": {"vocab_size": 128, "max_position_embeddings": 4096, "bos_token_id": 1, "eos_token_id": 2, "hidden_size": 64,
                    "num_attention_heads": 4, "num_kv_heads": 2, "model_type": "falcon", "architectures": ["FalconForCausalLM"],
                    "num_hidden_layers": 2, "new_decoder_architecture": True, "bias": False, "ffn_hidden_size": 80, "rope_theta": 10000.0,
                    "tie_word_embeddings": False},
    "tiny-falcon-old": {"vocab_size": 128, "max_position_embeddings": 4096, "bos_token_id": 1, "eos_token_id": 2, "hidden_size": 64,
                        "num_attention_heads": 4, "model_type": "falcon", "architectures": ["FalconForCausalLM"], "num_hidden_layers": 2,
                        "multi_query": True, "bias": True, "rope_theta": 10000.0, "tie_word_embeddings": True},
    "tiny-phi": {**{key: value for key, value in COMMON.items() if key not in ("rms_norm_eps", "hidden_act")}, "hidden_size": 64,
                 "num_attention_heads": 4, "num_key_value_heads": 2, "model_type": "phi", "architectures": ["PhiForCausalLM"],
                 "intermediate_size": 80, "num_hidden_layers": 2, "layer_norm_eps": 1e-5, "hidden_act": "gelu_new",
                 "partial_rotary_factor": 0.5, "rope_theta": 10000.0, "tie_word_embeddings": False},
    "tiny-stablelm": {**{key: value for key, value in COMMON.items() if key != "rms_norm_eps"}, "hidden_size": 64, "num_attention_heads": 4,
                      "num_key_value_heads": 2, "model_type": "stablelm", "architectures": ["StableLmForCausalLM"], "intermediate_size": 48,
                      "num_hidden_layers": 2, "layer_norm_eps": 1e-5, "use_qkv_bias": True, "partial_rotary_factor": 0.25,
                      "rope_theta": 10000.0, "tie_word_embeddings": False},
    "tiny-stablelm-parallel": {**{key: value for key, value in COMMON.items() if key != "rms_norm_eps"}, "hidden_size": 64,
                               "num_attention_heads": 4, "num_key_value_heads": 4, "model_type": "stablelm",
                               "architectures": ["StableLmForCausalLM"], "intermediate_size": 48, "num_hidden_layers": 2,
                               "layer_norm_eps": 1e-5, "use_parallel_residual": True, "partial_rotary_factor": 0.5, "rope_theta": 10000.0,
                               "tie_word_embeddings": True},
    # More heads and another rope in layers with a window, limits that take effect, the experts of each projection in one tensor.
    "tiny-step3p7": {"model_type": "step3p7", "architectures": ["Step3p7ForConditionalGeneration"], "tie_word_embeddings": False,
                     "text_config": {**COMMON, **TINY, "model_type": "step3p5", "intermediate_size": 48, "num_hidden_layers": 3,
                                     "num_sliding_attention_heads": 6, "sliding_window": 20, "n_routed_experts": 6,
                                     "num_experts_per_tok": 2, "moe_intermediate_size": 16, "share_expert_dim": 24,
                                     "moe_router_scaling_factor": 1.4, "mlp_layer_types": ["dense", "sparse", "sparse"],
                                     "layer_types": ["full_attention", "sliding_attention", "full_attention"],
                                     "swiglu_limits": [None, 0.0, 0.5], "swiglu_limits_shared": [0.4, None, 0.5],
                                     "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 50000.0,
                                                                            "partial_rotary_factor": 0.5},
                                                         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
                     "vision_config": {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                                       "image_size": 28, "mlp_ratio": 1.0}, "image_token_id": 1000},
    "tiny-muse-glimmer": {"model_type": "muse_glimmer", "architectures": ["MuseGlimmerForConditionalGeneration"],
                          "text_config": {**{key: value for key, value in COMMON.items() if key != "hidden_act"}, **TINY,
                                          "model_type": "muse_glimmer_text", "hidden_activation": "silu", "intermediate_size": 48,
                                          "num_hidden_layers": 5, "sliding_window": 20, "post_norm_eps": 1e-3, "rope_theta": 10000.0,
                                          "qk_scale_factor": 2.0, "output_multiplier": 1.5, "final_logit_softcapping": 8.0,
                                          "tie_word_embeddings": False},
                          "vision_config": {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
                          "image_token_id": 120, "video_token_id": 121, "out_hidden_size": 16, "projector_hidden_size": 16,
                          "tie_word_embeddings": False},
    # A soft cap on the logits.
    "tiny-gemma3-cap": {**GEMMA3, "num_hidden_layers": 1, "layer_types": ["full_attention"], "final_logit_softcapping": 5.0},
}
VARIANTS |= FURTHER
# The published formats: matrices in FP8 with power-of-two block scales, experts in MXFP4.
VARIANTS["tiny-deepseek-v4-fp8"] = {
    **VARIANTS["tiny-deepseek-v4"], "num_hidden_layers": 3, "layer_types": VARIANTS["tiny-deepseek-v4"]["layer_types"][:3],
    "mlp_layer_types": ["hash_moe", "moe", "moe"], "hidden_size": 160, "moe_intermediate_size": 32, "q_lora_rank": 32, "o_lora_rank": 16,
    "index_head_dim": 16, "n_routed_experts": 4, "hc_mult": 2, "expert_dtype": "fp4",
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "scale_fmt": "ue8m0",
                            "weight_block_size": [128, 128]}}
# Variants in sizes that device kernels support: rows of a multiple of 16 bytes, head sizes of a multiple of 8.
EVEN_LATENT = {"kv_lora_rank": 32, "v_head_dim": 16}
EVEN = {
    "tiny-deepseek-v3": {**EVEN_LATENT, "q_lora_rank": 24},
    "tiny-deepseek-v2": EVEN_LATENT,
    "tiny-youtu": {**EVEN_LATENT, "q_lora_rank": 24},
    "tiny-lfm2": {"hidden_size": 64, "intermediate_size": 128},
    "tiny-falcon-h1": {"head_dim": 24},
    "tiny-nemotron-h": {"head_dim": 24},
    "tiny-nemotron-h-moe": {"head_dim": 24},
    "tiny-nemotron-h-latent": {"head_dim": 24, "moe_latent_size": 16, "moe_intermediate_size": 24},
    "tiny-deepseek-v32": {**EVEN_LATENT, "q_lora_rank": 24},
    "tiny-glm-dsa": {**EVEN_LATENT, "q_lora_rank": 24},
}
VARIANTS |= {name + "-even": {**VARIANTS[name], **sizes} for name, sizes in EVEN.items()}
# Rope scalings that tests apply to a variant with --hf-overrides, with golden logits in golden_NAME.json. The original context is short, so
# that short prompts exceed it.
SCALED = "tiny-llama-bias"
SCALINGS = {
    "linear": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}, "max_position_embeddings": 24},
    "yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24}},
    "yarn_all": {"rope_theta": 50000.0,
                 "rope_parameters": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 48, "beta_fast": 12.0,
                                     "beta_slow": 0.5, "mscale": 1.5, "mscale_all_dim": 0.5, "truncate": False}},
}
# A window that tests add to variants without one, with golden logits in golden_window.json.
WINDOW = {"use_sliding_window": True, "sliding_window": 20}
WINDOWED = ("tiny-qwen3-moe-mixed", "tiny-qwen2-moe", "tiny-smollm3")
# Families whose transformers models use other tensor names than published checkpoints.
PUBLISHED = ("mixtral", "qwen2_moe", "granitemoehybrid", "glm4_moe", "gpt_oss", "ministral3", "deepseek_v2", "deepseek_v3", "glm4_moe_lite",
             "mistral4", "deepseek_v32", "deepseek_v4", "glm_moe_dsa", "lfm2", "lfm2_moe", "qwen3_next", "qwen3_5_text", "olmo_hybrid", "bamba",
             "falcon_h1", "nemotron_h", "minimax_m2", "hunyuan_v1_moe", "hy_v3", "ernie4_5_moe", "exaone_moe", "afmoe", "mellum",
             "granitemoe", "granitemoeshared", "olmoe", "phimoe", "dots1", "step3p7", "muse_glimmer", "exaone", "granitemoe_swa",
             "flex_olmo", "solar_open", "sarvam_moe", "gpt_neox", "falcon", "kimi_linear", "bailing_hybrid", "sarvam_mla", "flint", "lfm3",
             *FURTHER_PUBLISHED)
# Text parts of models of text and images.
NESTED = ("ministral3", "mistral4")
DTYPES = {"tiny-llama-bias": torch.float16, "tiny-llama-wide": torch.float32}  # the others: torch.bfloat16
PROMPT_LENGTHS = (1, 21, 70)
NEW_TOKENS = 16


def randomize(model, generator):
    """Random weights that let attention and MLP influence results; norms and biases differ from one and zero."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith(("norm.weight", "norm_f.weight")) or "layernorm_" in name or name.endswith("scale"):
            parameter.data = 1 + 0.3 * noise
        elif name.endswith("A_log"):
            parameter.data = torch.log(0.5 + 4 * torch.rand(parameter.shape, generator=generator))
        elif name.endswith(".D"):
            parameter.data = noise
        elif name.endswith(("bias", ".sinks", "_hc.base", ".hc_base")):
            parameter.data = 0.3 * noise
        elif parameter.dim() == 1 and name.endswith(".weight"):  # norms with other names
            parameter.data = 1 + 0.3 * noise
        elif ".act_fn." in name:
            parameter.data += 0.3 * noise
        elif "vision" in name:
            continue
        else:
            parameter.data = noise / parameter.shape[1] ** 0.5


    for name, buffer in model.named_buffers():
        if name.endswith(("e_score_correction_bias", "expert_bias")):
            buffer.data = 0.2 * torch.randn(buffer.shape, generator=generator)
        if name.endswith(".tid2eid"):
            buffer.data = torch.rand(buffer.shape[0], model.config.n_routed_experts, generator=generator).argsort(1)[:, :buffer.shape[1]].contiguous()
        if name.endswith("layer_scalar"):
            buffer.data = 0.8 + 0.2 * torch.rand(buffer.shape, generator=generator)


def mxfp4_experts(state):
    """Returns the experts in the published form: codes, and a power of two per 32 inputs. Replaces the experts in `state` by their rounded
    values."""
    values = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6])
    stored = {}
    for name in [name for name in state if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        weight = state[name].float().transpose(1, 2)  # [experts, out, in]
        groups = weight.reshape(*weight.shape[:2], -1, 32)
        exponents = torch.floor(torch.log2(groups.abs().amax(-1, keepdim=True))) - 2
        codes = (groups / 2**exponents).unsqueeze(-1).sub(values).abs().argmin(-1)
        state[name] = (values[codes] * 2**exponents).reshape(weight.shape).transpose(1, 2).contiguous()
        stored[name + "_blocks"] = (codes[..., 0::2] | codes[..., 1::2] << 4).to(torch.uint8)
        stored[name + "_scales"] = (exponents.squeeze(-1) + 127).to(torch.uint8)
    return stored


def v4_plain(name):
    """Whether DeepSeek V4 publishes a tensor of its modules as plain numbers."""
    plain = ("embed_tokens.weight", "head.weight", "gate.weight", "compressor.wkv.weight", "compressor.wgate.weight", "weights_proj.weight")
    return not name.endswith(".weight") or name.endswith(plain) or "norm" in name.split(".")[-2]


def round_v4(state):
    """Returns DeepSeek V4's published tensors as codes and scales, and the values that they stand for."""
    values = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6])
    stored, rounded = {}, {}
    for name, tensor in state.items():
        stored[name], rounded[name] = tensor, tensor
        if v4_plain(name):
            continue
        weight, scale_name = tensor.float(), name.removesuffix("weight") + "scale"
        rows, cols = weight.shape
        if ".experts." in name:
            groups = weight.reshape(rows, -1, 32)
            exponents = torch.floor(torch.log2(groups.abs().amax(-1, keepdim=True))) - 2
            codes = (groups / 2**exponents).unsqueeze(-1).sub(values).abs().argmin(-1)
            rounded[name] = (values[codes] * 2**exponents).reshape(rows, cols)
            codes = codes.reshape(rows, cols)
            stored[name] = (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8).view(torch.int8)
            exponents = exponents.squeeze(-1)
        else:
            blocks = [[weight[i:i + 128, k:k + 128] for k in range(0, cols, 128)] for i in range(0, rows, 128)]
            exponents = torch.tensor([[float(torch.ceil(torch.log2(block.abs().max() / 448))) for block in row] for row in blocks])
            scales = (2**exponents).repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :cols]
            stored[name] = (weight / scales).to(torch.float8_e4m3fn)
            rounded[name] = stored[name].float() * scales
        stored[scale_name] = (exponents + 127).to(torch.uint8).view(torch.float8_e8m0fnu)
    return stored, rounded


def load_published(model, state, settings, dtype):
    """Loads tensors with published names, as float32, into the model."""
    with tempfile.TemporaryDirectory() as scratch:
        copy.deepcopy(model).to(dtype).save_pretrained(scratch)
        save_file({name: value.float() if value.is_floating_point() else value for name, value in state.items()},
                  pathlib.Path(scratch) / "model.safetensors", metadata={"format": "pt"})
        loaded = AutoModelForCausalLM.from_pretrained(scratch, dtype=torch.float32, attn_implementation="eager")
    model.load_state_dict(loaded.state_dict())


def published(model, state, settings, dtype):
    """Returns the tensors under their published names, which transformers writes."""
    with tempfile.TemporaryDirectory() as scratch:
        # Save a copy: to() also rounds the rope frequencies.
        copy.deepcopy(model).to(dtype).save_pretrained(scratch)
        written = load_file(pathlib.Path(scratch) / "model.safetensors")
    # Tests compare only the text part with transformers.
    written = {name: value for name, value in written.items() if "vision" not in name and not name.startswith("vit_")}
    if settings["model_type"] in NESTED:
        written = {"language_model." + name: value for name, value in written.items()}
        written["vision_tower.ln_pre.weight"] = torch.ones(8, dtype=dtype)
    if settings["model_type"] == "qwen3_5_text":
        written = {name.replace("model.", "model.language_model.", 1): value for name, value in written.items()}
        written["model.visual.pos_embed.weight"] = torch.ones(4, 8, dtype=dtype)
        written["mtp.norm.weight"] = torch.ones(settings["hidden_size"], dtype=dtype)
    return written


def golden_case(model, prompt):
    ids = list(prompt)
    with torch.no_grad():
        prompt_logits = model(torch.tensor([ids])).logits[0]
        greedy, margins = [], []
        for _ in range(NEW_TOKENS):
            last = model(torch.tensor([ids])).logits[0, -1]
            top = last.topk(2)
            greedy.append(int(top.indices[0]))
            margins.append(float(top.values[0] - top.values[1]))
            ids.append(greedy[-1])
    positions = sorted({0, len(prompt) // 2, len(prompt) - 1})
    logits = [prompt_logits[position].tolist() for position in positions]
    return reduce_case({"prompt": list(prompt), "positions": positions, "logits": logits, "greedy": greedy, "margin": margins})


def make(name, folder):
    settings, dtype = VARIANTS[name], DTYPES.get(name, torch.bfloat16)
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    keys = {key: value for key, value in settings.items() if key not in ("model_type", "architectures", "quantization_config", "expert_dtype")}
    config = AutoConfig.for_model(settings["model_type"], **copy.deepcopy(keys))
    config._attn_implementation = "eager"
    # The automatic classes support Mistral 4 only with images, so name the class of its text part.
    is_mistral4 = settings["model_type"] == "mistral4"
    auto = AutoModelForImageTextToText if "text_config" in settings else AutoModelForCausalLM
    model = (Mistral4ForCausalLM(config) if is_mistral4 else auto.from_config(config)).float().eval()
    randomize(model, generator)
    if name == "tiny-axk1-unbiased":
        for key, buffer in model.named_buffers():
            if key.endswith("e_score_correction_bias"):
                buffer.data.zero_()
    state = {key: value.to(dtype).contiguous() for key, value in model.state_dict().items()}
    if settings["tie_word_embeddings"]:
        state.pop("lm_head.weight", None)
    is_v4 = settings["model_type"] == "deepseek_v4"
    experts = mxfp4_experts(state) if "quantization_config" in settings and not is_v4 else {}
    # Compute with the rounded weights that are stored.
    model.load_state_dict({key: value.float() for key, value in state.items()}, strict=False)
    model.tie_weights()
    folder.mkdir(parents=True, exist_ok=True)
    if settings["model_type"] in PUBLISHED:
        state = as_published(name, published(model, state, settings, dtype))
    if is_v4 and "quantization_config" in settings:
        state, rounded = round_v4(state)
        load_published(model, rounded, settings, dtype)
    if experts:
        state = {key: value for key, value in state.items() if key + "_blocks" not in experts} | experts
    if name == "tiny-phi3-long":  # use the table of the longest context for all lengths
        rotary = model.model.rotary_emb
        rotary.inv_freq, _ = ROPE_INIT_FUNCTIONS["longrope"](config, rotary.inv_freq.device, seq_len=512)
        rotary.rope_type = "default"
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    if name == "tiny-internlm3":  # use the table of the longest context, as make_scaled does
        rotary = model.model.rotary_emb
        longest = int(config.rope_parameters["factor"] * config.max_position_embeddings)
        rotary.inv_freq, _ = ROPE_INIT_FUNCTIONS["dynamic"](config, rotary.inv_freq.device, seq_len=longest)
        rotary.rope_type = "default"
    written = {**settings, "torch_dtype": str(dtype).split(".")[-1]}
    if settings["model_type"] in NESTED:
        text = {key: value for key, value in written.items() if key != "architectures"}
        written = {"architectures": settings["architectures"], "model_type": "mistral3", "text_config": text, "vision_config": {}}
    if settings["model_type"] == "qwen3_5_text":
        text = {key: value for key, value in written.items() if key not in ("architectures", "tie_word_embeddings")}
        written = {"architectures": settings["architectures"], "model_type": "qwen3_5", "text_config": text,
                   "tie_word_embeddings": settings["tie_word_embeddings"], "vision_config": {}}
    (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    vocab_size = settings.get("text_config", settings)["vocab_size"]
    prompts = [torch.randint(3, vocab_size, (length,), generator=generator).tolist() for length in PROMPT_LENGTHS]
    cases = [golden_case(model, prompt) for prompt in prompts]
    (folder / "golden.json").write_text(json.dumps({"cases": cases}, separators=(",", ":")) + "\n")


def make_scaled(name, folder):
    """Golden logits of a rope scaling. Dynamic scaling uses the factor of the longest context, as in vLLM. transformers changes the factor
    with the length of the sequence, but cached keys would keep the old one."""
    settings = json.loads((folder / "config.json").read_text())
    theta = SCALINGS[name].get("rope_theta", settings["rope_theta"])
    changes = {key: value for key, value in SCALINGS[name].items() if key not in ("rope_theta", "rope_scaling", "rope_parameters")}
    block = SCALINGS[name].get("rope_scaling") or SCALINGS[name]["rope_parameters"]
    skipped = ("model_type", "architectures", "rope_theta", "torch_dtype")
    keys = {key: value for key, value in settings.items() if key not in skipped}
    config = AutoConfig.for_model(settings["model_type"], **{**keys, **changes, "rope_parameters": {**block, "rope_theta": theta}})
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).float().eval()
    model.load_state_dict({key: value.float() for key, value in load_file(folder / "model.safetensors").items()})
    rotary = model.model.rotary_emb
    if name == "dynamic":
        longest = int(block["factor"] * config.max_position_embeddings)
        rotary.inv_freq, _ = ROPE_INIT_FUNCTIONS["dynamic"](config, rotary.inv_freq.device, seq_len=longest)
        rotary.rope_type = "default"
    prompts = [case["prompt"] for case in json.loads((folder / "golden.json").read_text())["cases"]]
    cases = [golden_case(model, prompt) for prompt in prompts]
    (folder / ("golden_%s.json" % name)).write_text(json.dumps({"cases": cases}, separators=(",", ":")) + "\n")


def make_windowed(folder):
    settings = json.loads((folder / "config.json").read_text())
    keys = {key: value for key, value in settings.items() if key not in ("model_type", "architectures", "torch_dtype")}
    config = AutoConfig.for_model(settings["model_type"], **{**keys, **WINDOW})
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32).eval()
    prompts = [case["prompt"] for case in json.loads((folder / "golden.json").read_text())["cases"]]
    cases = [golden_case(model, prompt) for prompt in prompts]
    (folder / "golden_window.json").write_text(json.dumps({"cases": cases}, separators=(",", ":")) + "\n")


def main():
    folder, *names = arguments(__doc__)
    target = pathlib.Path(folder)
    for name in names or [*VARIANTS, *SCALINGS, "window"]:
        if name in VARIANTS:
            make(name, target / name)
        elif name == "window":
            for checkpoint in WINDOWED:
                make_windowed(target / checkpoint)
        else:
            make_scaled(name, target / SCALED)


if __name__ == "__main__":
    main()
