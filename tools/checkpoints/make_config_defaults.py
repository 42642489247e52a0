#!/usr/bin/env python3
"""Writes the values that transformers uses for missing fields of config.json, by family.

    make_config_defaults.py tests/data/configs

Needs transformers. defaults.json: for each family, a small configuration with every field given; then, for each field, the values that
change if it is missing. published.json contains published configurations; entries with a "derived" object also get the values that the
class derives.
"""
import json
import pathlib

from arguments import arguments
from huggingface_hub.errors import StrictDataclassClassValidationError
from transformers import AutoConfig

COMMON = {"vocab_size": 640, "hidden_size": 512, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 32,
          "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 4096, "rms_norm_eps": 0.001, "rope_theta": 20000.0,
          "bos_token_id": 5, "eos_token_id": 6, "tie_word_embeddings": True}
SILU, GELU = {"hidden_act": "silu"}, {"hidden_activation": "gelu_pytorch_tanh"}
WINDOW = {"sliding_window": 32}
QWEN_WINDOW = {"use_sliding_window": True, "sliding_window": 32}
MOE = {"num_experts_per_tok": 3, "moe_intermediate_size": 24}
LATENT = {"num_key_value_heads": 32, "q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16, "v_head_dim": 24,
          "n_routed_experts": 64, "n_shared_experts": 1, "n_group": 2, "topk_group": 1}
INDEXED = {"index_topk": 64, "index_head_dim": 32, "index_n_heads": 8, "first_k_dense_replace": 2}
KDA = {"num_key_value_heads": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16, "v_head_dim": 24, "num_experts": 64,
       "num_experts_per_token": 3, "num_shared_experts": 1, "num_expert_group": 2, "topk_group": 1, "moe_intermediate_size": 24,
       "model_max_length": 4096, "layer_types": ["linear_attention", "full_attention"] * 2, "num_nextn_predict_layers": 0}
# Fields of latent attention that cannot be left out one at a time: q and keys have the same number of heads.
NOT_ALONE = ("num_attention_heads", "num_key_value_heads", "qk_rope_head_dim")
DELTA = {"layer_types": ["linear_attention", "full_attention"] * 2, "linear_num_value_heads": 32}
FAMILIES = {
    "llama": SILU, "mistral": {**SILU, **WINDOW}, "ministral": {**SILU, **WINDOW}, "ministral3": {**SILU, **WINDOW},
    "mixtral": {**SILU, **WINDOW, "num_local_experts": 8, "num_experts_per_tok": 3},
    "qwen2": {**SILU, **QWEN_WINDOW, "max_window_layers": 2}, "qwen3": {**SILU, **QWEN_WINDOW, "max_window_layers": 2},
    "qwen2_moe": {**SILU, **QWEN_WINDOW, **MOE, "max_window_layers": 3, "num_experts": 8, "shared_expert_intermediate_size": 40},
    "qwen3_moe": {**SILU, **QWEN_WINDOW, **MOE, "num_experts": 8},
    "smollm3": {**SILU, **QWEN_WINDOW, "no_rope_layer_interval": 2}, "olmo2": SILU, "olmo3": {**SILU, **WINDOW},
    "phi3": {**SILU, **WINDOW, "partial_rotary_factor": 0.5},
    "gemma2": {**GELU, **WINDOW, "query_pre_attn_scalar": 20, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 8.0},
    "gemma3_text": {**GELU, **WINDOW, "sliding_window_pattern": 2, "query_pre_attn_scalar": 20, "rope_local_base_freq": 500.0},
    "gemma4_text": {**GELU, **WINDOW, "global_head_dim": 32, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 262144},
    "glm4_moe": {**SILU, **MOE, "n_routed_experts": 8, "n_shared_experts": 2, "first_k_dense_replace": 2, "n_group": 1, "topk_group": 1,
                 "routed_scaling_factor": 2.0, "norm_topk_prob": False, "partial_rotary_factor": 0.25},
    "deepseek_v2": {**SILU, **MOE, **LATENT, "topk_method": "greedy"}, "deepseek_v3": {**SILU, **MOE, **LATENT},
    "kimi_linear": {**SILU, **KDA}, "bailing_hybrid": {**SILU, **KDA},
    "deepseek_v32": {**SILU, **MOE, **LATENT, **INDEXED}, "glm_moe_dsa": {**SILU, **MOE, **LATENT, **INDEXED},
    "deepseek_v4": {**SILU, **WINDOW, **MOE, "num_key_value_heads": 1, "partial_rotary_factor": 0.25, "q_lora_rank": 24,
                    "n_routed_experts": 8, "o_groups": 4, "o_lora_rank": 24, "index_topk": 64, "index_head_dim": 128, "index_n_heads": 8,
                    "hc_mult": 2, "layer_types": ["sliding_attention", "heavily_compressed_attention"] + ["compressed_sparse_attention"] * 2,
                    "mlp_layer_types": ["hash_moe"] + ["moe"] * 3},
    "glm4_moe_lite": {**SILU, **MOE, **LATENT}, "mistral4": {**SILU, **MOE, **LATENT, "head_dim": 40},
    "minicpm3": {**SILU, **{key: LATENT[key] for key in LATENT if key.endswith(("_dim", "_rank", "_heads"))}},
    "gpt_oss": {**SILU, **WINDOW, "num_local_experts": 8, "num_experts_per_tok": 3, "swiglu_limit": 3.0},
    "granite": {**SILU, "embedding_multiplier": 2.0, "logits_scaling": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.25},
    "granitemoehybrid": {**SILU, "num_local_experts": 8, "num_experts_per_tok": 3, "shared_intermediate_size": 40,
                         "position_embedding_type": "rope", "layer_types": ["attention"] * 4, "embedding_multiplier": 2.0,
                         "logits_scaling": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.25, "mamba_n_heads": 16},
    "lfm2": {"norm_eps": 0.002, "conv_L_cache": 4, "block_auto_adjust_ff_dim": False, "layer_types": ["conv", "full_attention"] * 2},
    "lfm2_moe": {**MOE, "norm_eps": 0.002, "num_experts": 8, "num_dense_layers": 1, "layer_types": ["conv", "full_attention"] * 2},
    "qwen3_next": {**SILU, **MOE, **DELTA, "num_experts": 8, "shared_expert_intermediate_size": 40},
    "qwen3_5_text": {**SILU, **DELTA},
    "qwen3_5_moe_text": {**SILU, **MOE, **DELTA, "num_experts": 8, "shared_expert_intermediate_size": 40},
    "olmo_hybrid": {**SILU, "layer_types": DELTA["layer_types"]},
    "bamba": {**SILU, "attn_layer_indices": [1], "mamba_n_heads": 16},
    "nemotron_h": {**MOE, "layers_block_type": ["mamba", "attention", "moe", "mlp"], "n_routed_experts": 8, "mamba_num_heads": 16,
                   "layer_norm_epsilon": 0.002},
    "falcon_h1": {**SILU, "mamba_d_ssm": 1024, "mamba_n_heads": 16},
    "llama4_text": {**SILU, "num_local_experts": 8, "num_experts_per_tok": 3, "intermediate_size_mlp": 80, "attention_chunk_size": 32,
                    "interleave_moe_layer_step": 2, "no_rope_layer_interval": 2},
    "minimax_m2": {**SILU, "num_local_experts": 8, "num_experts_per_tok": 3, "rotary_dim": 8},
    "hunyuan_v1_dense": SILU, "hunyuan_v1_moe": {**SILU, "num_experts": 8, "moe_topk": 3},
    "hy_v3": {**SILU, **MOE, "num_experts": 8, "num_shared_experts": 2, "router_scaling_factor": 2.0},
    "ernie4_5": SILU, "ernie4_5_moe": {**SILU, "moe_num_experts": 8, "moe_k": 3, "moe_intermediate_size": 24, "moe_num_shared_experts": 1,
                                       "moe_layer_start_index": 0, "moe_layer_end_index": 2, "moe_layer_interval": 2},
    "seed_oss": {**SILU, "attention_bias": False, "attention_out_bias": True},
    "exaone4": {**SILU, **WINDOW, "sliding_window_pattern": 3},
    "exaone_moe": {**SILU, **WINDOW, **MOE, "sliding_window_pattern": 3, "num_experts": 8, "num_shared_experts": 2,
                   "first_k_dense_replace": 2, "routed_scaling_factor": 2.0, "norm_topk_prob": False},
    "afmoe": {**SILU, **WINDOW, **MOE, "global_attn_every_n_layers": 3, "num_experts": 8, "num_shared_experts": 1, "num_dense_layers": 2,
              "route_scale": 2.0, "mup_enabled": True},
    "mellum": {**SILU, **WINDOW, **MOE, "num_local_experts": 8, "layer_types": ["sliding_attention", "full_attention"] * 2},
    "glm": {**SILU, "partial_rotary_factor": 0.25}, "glm4": {**SILU, "partial_rotary_factor": 0.25},
    "granitemoe": {**SILU, "num_local_experts": 8, "num_experts_per_tok": 3, "embedding_multiplier": 2.0},
    "granitemoeshared": {**SILU, "num_local_experts": 8, "num_experts_per_tok": 3, "shared_intermediate_size": 40},
    "olmoe": {**SILU, "num_experts": 8, "num_experts_per_tok": 3}, "gemma": {"hidden_act": "gelu_pytorch_tanh"},
    "starcoder2": {"hidden_act": "gelu_pytorch_tanh", **WINDOW, "use_bias": False},
    "cohere": {**SILU, "logit_scale": 0.5}, "cohere2": {**SILU, **WINDOW, "logit_scale": 0.5, "sliding_window_pattern": 3},
    "phimoe": {**SILU, **WINDOW, "num_local_experts": 8, "num_experts_per_tok": 2, "router_jitter_noise": 0.1},
    "apertus": {"hidden_act": "xielu"}, "internlm3": SILU, "arcee": {"hidden_act": "relu2"},
    "dots1": {**SILU, **WINDOW, **MOE, "n_routed_experts": 8, "n_shared_experts": 2, "first_k_dense_replace": 2, "max_window_layers": 1},
}
FAMILIES |= {
    "jais2": {"hidden_act": "relu2", "attention_bias": False, "mlp_bias": False},
    "nemotron": {"hidden_act": "relu2", "partial_rotary_factor": 0.25}, "helium": SILU, "cwm": {**SILU, **WINDOW}, "iquestcoder": SILU, "olmo": SILU,
    "exaone": SILU, "granite_swa": {**SILU, **WINDOW, "embedding_multiplier": 2.0},
    "granitemoe_swa": {**SILU, **WINDOW, "num_local_experts": 8, "num_experts_per_tok": 3, "shared_intermediate_size": 40},
    "hyperclovax": {**SILU, "use_post_norm": False}, "flex_olmo": {**SILU, "num_experts": 8, "num_experts_per_tok": 3},
    "solar_open": {**SILU, **MOE, "n_routed_experts": 8, "n_shared_experts": 2, "routed_scaling_factor": 2.0},
    "sarvam_moe": {**SILU, **MOE, "n_routed_experts": 8, "n_shared_experts": 2, "first_k_dense_replace": 2, "use_qk_norm": False},
    "vaultgemma": {**GELU, **WINDOW, "query_pre_attn_scalar": 20, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 8.0},
    "gpt_neox": {"hidden_act": "gelu", "rotary_pct": 0.5, "use_parallel_residual": False},
    "falcon": {"num_kv_heads": 2, "new_decoder_architecture": True, "ffn_hidden_size": 96},
    "phi": {"hidden_act": "gelu_new", "partial_rotary_factor": 0.25, "tie_word_embeddings": False},
    "stablelm": {**SILU, "use_qkv_bias": True, "partial_rotary_factor": 0.5},
    "flint": {**SILU, **WINDOW, **MOE, "num_experts": 8, "shared_expert_intermediate_size": 40},
    "lfm3": {"norm_eps": 0.002, "conv_L_cache": 4, **WINDOW, "layer_types": ["conv", "sliding_attention", "full_attention", "conv"]},
    "sarvam_mla": {**SILU, **MOE, **LATENT, "first_k_dense_replace": 2},
    "youtu": {**SILU, **{key: LATENT[key] for key in LATENT if key.endswith(("_dim", "_rank", "_heads"))}},
}
NO_HEADS = ("head_dim", "num_key_value_heads")
NO_ROPE = (*NO_HEADS, "intermediate_size", "rope_theta")
FAMILIES |= {
    "laguna": {**SILU, **WINDOW, **MOE, "num_experts": 8, "shared_expert_intermediate_size": 40,
               "layer_types": ["sliding_attention", "full_attention"] * 2},
    "kolibri1": {**SILU, **WINDOW, **MOE, "num_experts": 8, "shared_expert_intermediate_size": 40, "norm_topk_prob": True},
    "cohere2_moe": {**SILU, **WINDOW, "num_experts": 8, "num_experts_per_tok": 3, "num_shared_experts": 2, "sliding_window_pattern": 3,
                    "first_k_dense_replace": 2, "prefix_dense_sliding_window_pattern": 2, "prefix_dense_intermediate_size": 48},
    "lara_mini": {**SILU, **WINDOW, **MOE, "num_experts": 8, "shared_expert_intermediate_size": 40, "linear_num_value_heads": 32,
                  "layer_types": ["linear_attention", "sliding_attention", "full_attention", "sliding_attention"]},
    "axk1": {**SILU, **MOE, **LATENT, "first_k_dense_replace": 2},
    "mimo_v2_flash": {**SILU, **WINDOW, **MOE, "n_routed_experts": 8, "v_head_dim": 12, "attention_value_scale": 0.5},
    "cohere_compass_text": {**SILU, "sliding_window": 32, "logit_scale": 0.5, "layer_types": ["sliding_attention", "full_attention"] * 2,
                            "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 20000.0}, "sliding_attention": None}},
    "beam": {**SILU, **WINDOW, **MOE, "num_experts": 8, "n_group": 2, "topk_group": 1, "routed_scaling_factor": 2.0},
    "apertus1p5_text": {"hidden_act": "xielu"}, "gemma4_unified_text": {**GELU, **WINDOW, "global_head_dim": 32},
    "nanochat": {"hidden_act": "relu2", "final_logit_softcapping": 3.0}, "bitnet": {"hidden_act": "relu2"},
    "minimax_m3_vl_text": {**SILU, "num_local_experts": 8, "num_experts_per_tok": 3, "dense_intermediate_size": 40, "shared_intermediate_size": 40},
    "aria_text": {**SILU, "moe_num_experts": 6, "moe_topk": 3, "moe_num_shared_experts": 1},
    "persimmon": {"hidden_act": "relu2", "partial_rotary_factor": 0.25, "qk_layernorm": False},
    "gptj": {"activation_function": "gelu_new", "rotary_dim": 8, "n_inner": 80, "tie_word_embeddings": False},
    "codegen": {"activation_function": "gelu_new", "rotary_dim": 8, "n_inner": 80, "tie_word_embeddings": False},
    "gpt2": {"activation_function": "gelu_new", "n_inner": 80}, "gpt_bigcode": {"activation_function": "gelu_new", "n_inner": 80},
    "gpt_neo": {"activation_function": "gelu_new", "window_size": 32, "attention_types": [[["global", "local"], 2]]},
    "opt": {"activation_function": "relu", "ffn_dim": 80}, "biogpt": {"hidden_act": "gelu", "scale_embedding": False},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0}, "tie_word_embeddings": False,
             "ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 8, "moe_top_k": 3}},
}
# Fields that the classes do not have.
UNKNOWN = {"deepseek_v4": ("intermediate_size",), **{name: ("max_position_embeddings", "rope_theta") for name in ("kimi_linear",)}, "bailing_hybrid": ("max_position_embeddings",), "falcon": ("head_dim", "num_key_value_heads", "intermediate_size"), "gpt_neox": ("head_dim", "num_key_value_heads", "rope_theta"),
           "olmo": ("rms_norm_eps",),
           **{name: NO_ROPE for name in ("gptj", "codegen", "gpt2", "gpt_bigcode")},
           **{name: (*NO_ROPE, "rms_norm_eps") for name in ("opt", "biogpt")},
           "gpt_neo": (*NO_HEADS, "rope_theta"), "persimmon": NO_HEADS, "dbrx": (*NO_HEADS, "intermediate_size", "rms_norm_eps"),
           "aria_text": (), "bitnet": (), "kolibri1": ("intermediate_size",), "lara_mini": ("intermediate_size",),
           **{name: ("rope_theta",) for name in ("laguna", "mimo_v2_flash", "beam", "cohere_compass_text")}}
# Classes without an epsilon field, whose norms use this epsilon.
FIXED_EPSILON = {name: 1e-5 for name in ("olmo", "opt", "biogpt", "dbrx")}
# Names of the epsilon field of norms, if not rms_norm_eps.
EPSILON = {"cohere": "layer_norm_eps", "cohere2": "layer_norm_eps", "starcoder2": "norm_epsilon", "jais2": "layer_norm_eps",
           "nemotron": "norm_eps", "exaone": "layer_norm_epsilon", "gpt_neox": "layer_norm_eps", "falcon": "layer_norm_epsilon",
           "phi": "layer_norm_eps", "stablelm": "layer_norm_eps", "persimmon": "layer_norm_eps", "cohere2_moe": "layer_norm_eps",
           "cohere_compass_text": "layer_norm_eps",
           **{name: "layer_norm_epsilon" for name in ("gptj", "codegen", "gpt2", "gpt_bigcode", "gpt_neo")},
           "lfm2": "norm_eps", "lfm2_moe": "norm_eps", "lfm3": "norm_eps", "nemotron_h": "layer_norm_epsilon"}
# Without these fields, the model has other kinds of layers, or a number of layers that contradicts the other fields.
LEFT_OUT = {"granitemoehybrid": ("layer_types", "num_hidden_layers", "mamba_n_heads"), "mellum": ("num_hidden_layers",),
            # Without these, the model cannot be built.
            "dots1": ("n_routed_experts", "n_shared_experts", "num_experts_per_tok"),
            # The defaults have fewer experts than a token needs, or a number of heads that does not divide.
            "hunyuan_v1_moe": ("num_experts",), "helium": ("num_key_value_heads",),
            # The default end tokens are outside this vocabulary.
            "glm": ("eos_token_id",), "glm4": ("eos_token_id",), "cwm": ("eos_token_id",),
            "deepseek_v2": (*NOT_ALONE, "num_experts_per_tok"), "deepseek_v3": NOT_ALONE, "glm4_moe_lite": NOT_ALONE,
            "deepseek_v4": ("num_hidden_layers",), "deepseek_v32": NOT_ALONE, "glm_moe_dsa": NOT_ALONE,
            **{name: (*NOT_ALONE, "layer_types", "num_hidden_layers") for name in ("kimi_linear", "bailing_hybrid")},
            **{name: ("layer_types", "num_hidden_layers") for name in ("lfm2_moe", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid")},
            "nemotron_h": ("layers_block_type", "num_hidden_layers"),
            "lfm2": ("layer_types", "num_hidden_layers", "block_auto_adjust_ff_dim"), "bamba": ("attn_layer_indices",),
            "qwen3_next": ("layer_types", "num_hidden_layers", "num_experts_per_tok"),
            "mistral4": (*NOT_ALONE, "qk_nope_head_dim"), "minicpm3": NOT_ALONE, "sarvam_mla": NOT_ALONE, "youtu": NOT_ALONE,
            "flint": ("num_hidden_layers",), "lfm3": ("layer_types", "num_hidden_layers"),
            "laguna": ("num_hidden_layers",), "kolibri1": ("num_hidden_layers",), "lara_mini": ("layer_types", "num_hidden_layers"),
            # The default RoPE settings are for other kinds of layers.
            "cohere_compass_text": ("rope_parameters", "layer_types", "num_hidden_layers"),
            "axk1": NOT_ALONE, "mimo_v2_flash": ("num_hidden_layers", "v_head_dim"),
            # The defaults have groups of a single expert, a rotated part wider than the heads, or undefined kinds of
            # layers.
            "beam": ("n_group", "topk_group", "num_experts", "num_experts_per_tok", "num_hidden_layers"), "bitnet": ("num_key_value_heads",), "gptj": ("rotary_dim",), "codegen": ("rotary_dim",),
            "gpt_neo": ("num_hidden_layers", "attention_types"), "dbrx": ("num_attention_heads",)}


def windows(config):
    """The window or chunk of each layer, 0 for none."""
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None) or 0
    if config.model_type == "gpt_neo":
        return [config.window_size if kind == "local" else 0 for kind in config.attention_layers]
    if not kinds:
        return [window] * config.num_hidden_layers
    size = {"sliding_attention": window, "chunked_attention": getattr(config, "attention_chunk_size", 0)}
    return [size.get(kind, 0) for kind in kinds]


def falcon_keys(config):
    return config.num_kv_heads if config.new_decoder_architecture or not config.multi_query else 1


def inner_width(model_type, config):
    if model_type == "dbrx":
        return config.ffn_config.ffn_hidden_size
    names = {"falcon": "ffn_hidden_size", "opt": "ffn_dim", **{name: "n_inner" for name in ("gptj", "codegen", "gpt2", "gpt_bigcode")}}
    return getattr(config, names.get(model_type, "intermediate_size")) or 4 * config.hidden_size


def derived(model_type, fields):
    fields = {key: value for key, value in fields.items() if key not in ("model_type", "architectures", "transformers_version")}
    config = AutoConfig.for_model(model_type, **json.loads(json.dumps(fields)))
    heads = config.num_attention_heads
    rope = getattr(config, "rope_parameters", None) or {}  # missing in Nemotron-H
    rope = rope.get("full_attention", rope.get("main", rope)) or {}  # null in Beam
    eos = config.eos_token_id
    is_gemma4 = model_type in ("gemma4_text", "gemma4_unified_text")
    head_dim = fields.get("head_dim", 256) if is_gemma4 else getattr(config, "head_dim", None)
    values = {name: getattr(config, name) for name in ("vocab_size", "hidden_size", "num_hidden_layers", "max_position_embeddings",
                                                       "tie_word_embeddings", "bos_token_id")}
    values["rms_norm_eps"] = FIXED_EPSILON.get(model_type) or getattr(config, EPSILON.get(model_type, "rms_norm_eps"))
    values.update(num_attention_heads=heads, num_key_value_heads=fields.get("num_key_value_heads") or
                  (4 if is_gemma4 else falcon_keys(config) if model_type == "falcon" else
                   getattr(config, "num_key_value_heads", None) or heads),
                  head_dim=head_dim or config.hidden_size // heads, eos_token_id=eos,
                  **{name: rope[name] for name in ("rope_theta", "rope_type") if rope}, windows=windows(config))
    # These families name the MLP's width differently, or have only a width of experts.
    if model_type not in ("llama4_text", "granitemoehybrid", "solar_open", "qwen3_5_moe_text", "kolibri1", "lara_mini"):
        values["intermediate_size"] = inner_width(model_type, config)
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    if experts and hasattr(config, "num_experts_per_tok"):
        width = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
        values.update(num_experts=experts, num_experts_per_tok=config.num_experts_per_tok, expert_intermediate_size=width)
    # Token ids outside the vocabulary are dropped.
    for name in ("bos_token_id", "eos_token_id"):
        ids = values[name] if isinstance(values[name], list) else [values[name]]
        if name not in fields and values[name] is not None and max(ids) >= values["vocab_size"]:
            values[name] = None
    return values


def main():
    folder = pathlib.Path(arguments(__doc__)[0])
    families = {}
    for model_type, own in FAMILIES.items():
        fields = {EPSILON.get(model_type, name) if name == "rms_norm_eps" else name: value for name, value in {**COMMON, **own}.items()
                  if name not in UNKNOWN.get(model_type, ())}
        base = derived(model_type, fields)
        missing = {}
        for name in fields:
            if name in LEFT_OUT.get(model_type, ()):
                continue
            try:
                values = derived(model_type, {key: value for key, value in fields.items() if key != name})
            except StrictDataclassClassValidationError:
                continue  # the remaining fields contradict each other
            missing[name] = {key: value for key, value in values.items() if value != base.get(key)}
        families[model_type] = {"config": fields, "derived": base, "missing": missing}
        # Defaults of a file that contains only model_type. GLM's default head size of 42 cannot be halved.
        if model_type not in LEFT_OUT and model_type != "glm4_moe":
            families[model_type]["nothing"] = derived(model_type, {})
    lines = ",\n".join(json.dumps(name) + ": " + json.dumps(value, separators=(",", ":")) for name, value in families.items())
    (folder / "defaults.json").write_text("{\n" + lines + "\n}\n")
    published = json.loads((folder / "published.json").read_text())
    for entry in published.values():
        if "derived" in entry:
            config = entry["config"].get("text_config", entry["config"])
            # Older configurations: a flat file, and one written by the model's own code.
            older = {"qwen2_vl": "qwen2_vl_text", "stablelm_epoch": "stablelm"}
            model_type = older.get(config["model_type"], config["model_type"])
            if config["model_type"] == "stablelm_epoch":
                names = {"norm_eps": "layer_norm_eps", "rope_pct": "partial_rotary_factor"}
                config = {names.get(key, key): value for key, value in config.items()}
            entry["derived"] = derived(model_type, config)
    lines = ",\n".join(json.dumps(name) + ": " + json.dumps(value, separators=(",", ":")) for name, value in published.items())
    (folder / "published.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
