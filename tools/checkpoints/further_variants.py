"""Configurations of further families for make_variants.py."""

COMMON = {"vocab_size": 128, "max_position_embeddings": 4096, "hidden_act": "silu", "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2}
TOKENS = {key: COMMON[key] for key in ("vocab_size", "bos_token_id", "eos_token_id")}
TINY = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
EXPERTS = {"moe_intermediate_size": 16, "num_experts": 6, "num_experts_per_tok": 2}
LATENT = {"hidden_size": 32, "intermediate_size": 48, "moe_intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 4, "kv_lora_rank": 18, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 12, "q_lora_rank": 20,
          "tie_word_embeddings": False}
AXK1 = {**COMMON, **LATENT, "model_type": "axk1", "architectures": ["AXK1ForCausalLM"], "n_routed_experts": 8, "num_experts_per_tok": 3,
        "n_shared_experts": 1, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.7, "norm_topk_prob": True,
        "mlp_layer_types": ["dense", "sparse"]}
GPT2 = {**TOKENS, "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 256, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}
FAIRSEQ = {**TOKENS, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 256, "pad_token_id": 0,
           "tie_word_embeddings": True}
COHERE = {**TOKENS, "max_position_embeddings": 4096, "hidden_act": "silu", **TINY, "intermediate_size": 24, "logit_scale": 0.5,
          "layer_norm_eps": 1e-5, "rope_theta": 10000.0, "pad_token_id": 0, "tie_word_embeddings": True}
COHERE2_MOE = {**COHERE, "model_type": "cohere2_moe", "architectures": ["Cohere2MoeForCausalLM"], "sliding_window": 20, "num_experts": 6,
               "num_experts_per_tok": 2, "num_shared_experts": 2}

FURTHER = {
    # More heads in the layer with full attention, YaRN on half of each head, a router cap that takes effect.
    "tiny-laguna": {**COMMON, **TINY, **EXPERTS, "model_type": "laguna", "architectures": ["LagunaForCausalLM"], "intermediate_size": 48,
                    "shared_expert_intermediate_size": 24, "num_hidden_layers": 3, "sliding_window": 20, "gating": True,
                    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                    "mlp_layer_types": ["dense", "sparse", "sparse"], "num_attention_heads_per_layer": [4, 6, 4],
                    "moe_routed_scaling_factor": 1.4, "moe_router_logit_softcapping": 0.6, "tie_word_embeddings": False,
                    "rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "partial_rotary_factor": 0.5,
                                                           "factor": 4.0, "original_max_position_embeddings": 24},
                                        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
    # A gate for each element, no cap, no windows, the default RoPE settings of the class.
    "tiny-laguna-numbers": {**COMMON, **TINY, **EXPERTS, "model_type": "laguna", "architectures": ["LagunaForCausalLM"],
                            "intermediate_size": 48, "shared_expert_intermediate_size": 24, "num_hidden_layers": 2,
                            "gating": "per-element", "attention_bias": True, "tie_word_embeddings": True},
    # Blocks of 16 positions, of which a row of the last two layers attends to 3; limits that take effect.
    "tiny-minimax-m3": {"model_type": "minimax_m3_vl", "architectures": ["MiniMaxM3SparseForConditionalGeneration"], "tie_word_embeddings": False,
                        "text_config": {**{key: value for key, value in COMMON.items() if key != "hidden_act"}, **TINY,
                                        "model_type": "minimax_m3_vl_text", "num_hidden_layers": 3, "intermediate_size": 16,
                                        "dense_intermediate_size": 48, "shared_intermediate_size": 24, "num_local_experts": 6,
                                        "num_experts_per_tok": 2, "routed_scaling_factor": 1.4, "rotary_dim": 8, "swiglu_alpha": 1.3,
                                        "swiglu_limit": 0.7, "index_n_heads": 2, "index_head_dim": 12, "index_block_size": 16,
                                        "index_topk_blocks": 3, "index_local_blocks": 1,
                                        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
                                        "layer_types": ["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"],
                                        "mlp_layer_types": ["dense", "sparse", "sparse"], "tie_word_embeddings": False},
                        "vision_config": {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                                          "image_size": 28, "patch_size": 14}, "image_token_index": 1000, "video_token_index": 1001,
                        "projector_hidden_size": 16},
    # The text part alone, whose modules have other names; two local blocks, the default limits.
    "tiny-minimax-m3-text": {**{key: value for key, value in COMMON.items() if key != "hidden_act"}, **TINY,
                             "model_type": "minimax_m3_vl_text", "architectures": ["MiniMaxM3VLForCausalLM"], "num_hidden_layers": 2,
                             "intermediate_size": 16, "dense_intermediate_size": 24, "shared_intermediate_size": 24,
                             "num_local_experts": 4, "num_experts_per_tok": 2, "rotary_dim": 16, "index_n_heads": 2, "index_head_dim": 16,
                             "index_block_size": 16, "index_topk_blocks": 3, "index_local_blocks": 2, "rope_theta": 10000.0,
                             "layer_types": ["minimax_m3_sparse"] * 2, "mlp_layer_types": ["dense", "sparse"],
                             "tie_word_embeddings": False},
    "tiny-kolibri": {**COMMON, **TINY, **EXPERTS, "model_type": "kolibri1", "architectures": ["Kolibri1ForCausalLM"],
                     "shared_expert_intermediate_size": 24, "num_hidden_layers": 3, "sliding_window": 20, "norm_topk_prob": True,
                     "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "rope_theta": 10000.0,
                     "tie_word_embeddings": False},
    # One layer has no experts, and has rope nevertheless. The other layers have experts, and add the mean of two
    # shared experts.
    "tiny-cohere2-moe": {**COHERE2_MOE, "num_hidden_layers": 4, "prefix_dense_intermediate_size": 40,
                         "layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention"],
                         "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]},
    # RMS norms, sigmoid routing, a sum of the shared experts.
    "tiny-cohere2-moe-sum": {**COHERE2_MOE, "num_hidden_layers": 2, "rms_norm_eps": 1e-5, "expert_selection_fn": "sigmoid",
                             "norm_topk_prob": False, "shared_expert_combination_strategy": "sum", "tie_word_embeddings": False,
                             "layer_types": ["full_attention", "sliding_attention"], "mlp_layer_types": ["sparse", "sparse"]},
    # Windows with rope, and full attention without.
    "tiny-cohere-compass": {**{key: value for key, value in COHERE.items() if key != "rope_theta"}, "model_type": "cohere_compass_text",
                            "architectures": ["CohereCompassForCausalLM"], "num_hidden_layers": 3, "sliding_window": 20,
                            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                            "rope_parameters": {"full_attention": None,
                                                "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0,
                                                                      "mrope_section": [4, 2, 2]}}},
    # Layer norms of heads, with weights for each head.
    "tiny-cohere-heads": {**{key: value for key, value in COHERE.items() if key != "head_dim"}, "model_type": "cohere",
                          "architectures": ["CohereForCausalLM"], "num_hidden_layers": 2, "use_qk_norm": True},
    "tiny-gptj": {**GPT2, "model_type": "gptj", "architectures": ["GPTJForCausalLM"], "rotary_dim": 4, "tie_word_embeddings": False},
    "tiny-codegen": {**GPT2, "model_type": "codegen", "architectures": ["CodeGenForCausalLM"], "n_head": 8, "rotary_dim": 4, "n_inner": 40,
                     "tie_word_embeddings": False},
    "tiny-nanochat": {**{key: value for key, value in COMMON.items() if key != "hidden_act"}, "model_type": "nanochat",
                      "architectures": ["NanoChatForCausalLM"], "hidden_act": "relu2", "hidden_size": 32, "intermediate_size": 48,
                      "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "final_logit_softcapping": 5.0,
                      "rope_theta": 10000.0, "tie_word_embeddings": False},
    # Projections of Gated DeltaNet in one tensor, one layer with a window, one without rope.
    "tiny-lara-mini": {**COMMON, **EXPERTS, "model_type": "lara_mini", "architectures": ["LaraMiniForCausalLM"], "hidden_size": 32,
                       "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "num_hidden_layers": 3,
                       "layer_types": ["linear_attention", "sliding_attention", "full_attention"], "sliding_window": 20,
                       "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12,
                       "linear_conv_kernel_dim": 4, "shared_expert_intermediate_size": 24, "rope_theta": 10000.0,
                       "tie_word_embeddings": True},
    "tiny-axk1": AXK1,
    # Like the published model: no bias for expert selection, and an unused norm.
    "tiny-axk1-unbiased": AXK1,
    # Experts that read a vector of 12 numbers instead of the hidden row.
    "tiny-nemotron-h-latent": {**TOKENS, "max_position_embeddings": 4096, "pad_token_id": 0, "model_type": "nemotron_h",
                               "architectures": ["NemotronHForCausalLM"], "layer_norm_epsilon": 1e-5, "hidden_size": 32,
                               "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 20, "intermediate_size": 48,
                               "mamba_num_heads": 4, "mamba_head_dim": 12, "n_groups": 2, "ssm_state_size": 10, "conv_kernel": 4,
                               "chunk_size": 16, "use_conv_bias": True, "mlp_hidden_act": "relu2", "time_step_min": 1e-6,
                               "residual_in_fp32": False, "layers_block_type": ["mamba", "moe", "attention", "moe"],
                               "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "moe_latent_size": 12,
                               "moe_shared_expert_intermediate_size": 24, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
                               "routed_scaling_factor": 1.5, "tie_word_embeddings": False},
    "tiny-gpt2": {**GPT2, "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "scale_attn_by_inverse_layer_idx": True},
    "tiny-gpt-bigcode": {**GPT2, "model_type": "gpt_bigcode", "architectures": ["GPTBigCodeForCausalLM"], "n_inner": 40},
    "tiny-gpt-bigcode-heads": {**GPT2, "model_type": "gpt_bigcode", "architectures": ["GPTBigCodeForCausalLM"], "multi_query": False},
    "tiny-gpt-neo": {**TOKENS, "model_type": "gpt_neo", "architectures": ["GPTNeoForCausalLM"], "hidden_size": 32, "num_heads": 4,
                     "num_layers": 3, "attention_types": [[["global", "local"], 1], [["global"], 1]], "window_size": 20,
                     "max_position_embeddings": 256, "tie_word_embeddings": True},
    "tiny-opt": {**FAIRSEQ, "model_type": "opt", "architectures": ["OPTForCausalLM"], "ffn_dim": 48},
    "tiny-biogpt": {**FAIRSEQ, "model_type": "biogpt", "architectures": ["BioGptForCausalLM"], "intermediate_size": 48},
    # Value heads of 10 numbers; more KV heads in layers with a window.
    "tiny-mimo-v2-flash": {**COMMON, **TINY, "model_type": "mimo_v2_flash", "architectures": ["MiMoV2FlashForCausalLM"],
                           "num_key_value_heads": 1, "v_head_dim": 10, "intermediate_size": 48, "moe_intermediate_size": 16,
                           "num_hidden_layers": 3, "n_routed_experts": 6, "num_experts_per_tok": 2, "sliding_window": 20,
                           "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
                           "mlp_layer_types": ["dense", "sparse", "sparse"], "attention_value_scale": 0.7, "routed_scaling_factor": 1.3,
                           "rope_parameters": {
                               kind: {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": 0.5}
                               for kind, theta in (("full_attention", 50000.0), ("sliding_attention", 10000.0))},
                           "tie_word_embeddings": False},
    "tiny-beam": {**COMMON, **TINY, **EXPERTS, "model_type": "beam", "architectures": ["BeamForCausalLM"], "intermediate_size": 48,
                  "num_hidden_layers": 3, "num_experts": 8, "n_group": 4, "topk_group": 2, "sliding_window": 20,
                  "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                  "mlp_layer_types": ["dense", "sparse", "sparse"], "final_logit_softcapping": 6.0, "rms_norm_eps": 1e-2,
                  "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}, "full_attention": None},
                  "tie_word_embeddings": False},
    "tiny-persimmon": {**TOKENS, "max_position_embeddings": 4096, "hidden_act": "relu2", "hidden_size": 32, "num_attention_heads": 4,
                       "model_type": "persimmon", "architectures": ["PersimmonForCausalLM"], "intermediate_size": 48,
                       "num_hidden_layers": 2, "layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5, "rope_theta": 10000.0,
                       "tie_word_embeddings": False},
    "tiny-stablelm-heads": {**TOKENS, "max_position_embeddings": 4096, "hidden_act": "silu", "hidden_size": 32, "num_attention_heads": 4,
                            "num_key_value_heads": 2, "model_type": "stablelm", "architectures": ["StableLmForCausalLM"],
                            "intermediate_size": 48, "num_hidden_layers": 2, "layer_norm_eps": 1e-5, "qk_layernorm": True,
                            "partial_rotary_factor": 0.5, "rope_theta": 10000.0, "tie_word_embeddings": False},
    "tiny-phi-heads": {**TOKENS, "max_position_embeddings": 4096, "hidden_act": "gelu_new", "hidden_size": 32, "num_attention_heads": 4,
                       "num_key_value_heads": 2, "model_type": "phi", "architectures": ["PhiForCausalLM"], "intermediate_size": 48,
                       "num_hidden_layers": 1, "layer_norm_eps": 1e-5, "qk_layernorm": True, "partial_rotary_factor": 0.5,
                       "rope_theta": 10000.0, "tie_word_embeddings": False},
    # A clip limit that takes effect.
    "tiny-olmo-limit": {**{key: value for key, value in COMMON.items() if key != "rms_norm_eps"}, "model_type": "olmo",
                        "architectures": ["OlmoForCausalLM"], "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
                        "intermediate_size": 48, "num_hidden_layers": 2, "clip_qkv": 0.7, "rope_theta": 10000.0, "pad_token_id": 0,
                        "tie_word_embeddings": False},
    "tiny-dbrx": {**TOKENS, "model_type": "dbrx", "architectures": ["DbrxForCausalLM"], "d_model": 32, "n_heads": 4, "n_layers": 2,
                  "max_seq_len": 4096, "attn_config": {"kv_n_heads": 2, "clip_qkv": 0.7, "rope_theta": 50000.0},
                  "ffn_config": {"ffn_hidden_size": 24, "moe_num_experts": 4, "moe_top_k": 2, "moe_normalize_expert_weights": 1.0},
                  "rope_theta": 50000.0, "tie_word_embeddings": False},
    "tiny-bitnet": {**{key: value for key, value in COMMON.items() if key != "hidden_act"}, "hidden_act": "relu2", "hidden_size": 32,
                    "num_attention_heads": 4, "num_key_value_heads": 2, "model_type": "bitnet", "architectures": ["BitNetForCausalLM"],
                    "intermediate_size": 48, "num_hidden_layers": 2, "rope_theta": 10000.0, "tie_word_embeddings": True},
    "tiny-aria": {**COMMON, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "model_type": "aria_text",
                  "architectures": ["AriaTextForCausalLM"], "intermediate_size": 16, "num_hidden_layers": 2, "moe_num_experts": 6,
                  "moe_topk": 2, "moe_num_shared_experts": 2, "rope_theta": 10000.0, "tie_word_embeddings": False},
    "tiny-apertus-1p5": {**{key: value for key, value in COMMON.items() if key != "hidden_act"}, "hidden_act": "xielu",
                         "model_type": "apertus1p5_text", "architectures": ["Apertus1p5TextForCausalLM"], "hidden_size": 32,
                         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48, "num_hidden_layers": 2,
                         "rope_theta": 10000.0, "tie_word_embeddings": False},
    "tiny-gemma4-unified": {**{key: value for key, value in COMMON.items() if key != "hidden_act"}, "model_type": "gemma4_unified_text",
                            "architectures": ["Gemma4UnifiedForCausalLM"], "hidden_size": 32, "intermediate_size": 48,
                            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "global_head_dim": 32,
                            "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 20,
                            "hidden_activation": "gelu_pytorch_tanh", "attention_bias": False, "tie_word_embeddings": True,
                            "rope_parameters": {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                                                                   "rope_theta": 1000000.0},
                                                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
}
# Families whose transformers models use other tensor names than published checkpoints.
FURTHER_PUBLISHED = ("laguna", "kolibri1", "cohere2_moe", "lara_mini", "axk1", "mimo_v2_flash", "beam", "aria_text", "apertus1p5_text",
                     "minimax_m3_vl")


def as_published(name, state):
    """Converts tensors to the published form, if it differs from what transformers writes."""
    if name != "tiny-axk1-unbiased":
        return state
    norm = state["model.layers.1.post_mlp_layernorm.weight"]
    return {key: value for key, value in state.items() if not key.endswith("e_score_correction_bias")} | {
        "model.layers.0.post_mlp_layernorm.weight": norm.clone()}
