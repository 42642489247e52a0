#!/usr/bin/env python3
"""Makes tiny random models of text and images, with golden answers from transformers in float32.

    make_vision.py tests/data/checkpoints [name ...]

Needs torch, transformers and safetensors. golden_images.json has the prompt and the images of each case. An image has the position of its
tokens, a mark for each token that stands for a row, its grid, and the shape of its pixel values. pixels() computes the pixel values, so
they are not stored. "rows" are the first numbers of the first and the last row of the tower for each image.
"""
import json
import pathlib
import sys
import zlib

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from arguments import arguments  # noqa: E402
from reduce_golden import reduce_case  # noqa: E402

VOCAB, IMAGE, BEGIN, END = 120, 100, 101, 102
TEXT = {"vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2,
        "pad_token_id": 0, "tie_word_embeddings": False}
GEMMA_TEXT = {**TEXT, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True, "sliding_window": 12,
              "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "attention_bias": False}
SIGLIP = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 4, "num_channels": 3}
QWEN = {"depth": 3, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2, "in_channels": 3, "patch_size": 4, "spatial_merge_size": 2,
        "temporal_patch_size": 2, "out_hidden_size": 32}
QWEN_IDS = {"image_token_id": IMAGE, "video_token_id": 103, "vision_start_token_id": BEGIN, "vision_end_token_id": END}
GLM_IDS = {"image_token_id": IMAGE, "video_token_id": 103, "image_start_token_id": BEGIN, "image_end_token_id": END,
           "video_start_token_id": 104, "video_end_token_id": 105}
GEMMA4_VISION = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
                 "head_dim": 8, "patch_size": 4, "pooling_kernel_size": 3, "position_embedding_size": 32,
                 "hidden_activation": "gelu_pytorch_tanh", "rope_parameters": {"rope_type": "axial", "rope_theta": 100.0}}
GEMMA4_ROPE = {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
               "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
GEMMA4_IDS = {"image_token_id": IMAGE, "boi_token_id": BEGIN, "eoi_token_id": END, "audio_token_id": 104, "video_token_id": 103,
              "boa_token_id": 105, "eoa_token_index": 106, "audio_config": None}

VARIANTS = {
    "tiny-gemma3-vision": {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "mm_tokens_per_image": 9,
                           "image_token_index": IMAGE, "boi_token_index": BEGIN, "eoi_token_index": END, "tie_word_embeddings": True,
                           "text_config": {**GEMMA_TEXT, "model_type": "gemma3_text", "query_pre_attn_scalar": 16,
                                           "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                                                               "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
                           "vision_config": {**SIGLIP, "model_type": "siglip_vision_model", "image_size": 24, "vision_use_head": False}},
    "tiny-gemma4-vision": {"model_type": "gemma4", "architectures": ["Gemma4ForConditionalGeneration"], "tie_word_embeddings": True, **GEMMA4_IDS,
                           "text_config": {**GEMMA_TEXT, "model_type": "gemma4_text", "num_global_key_value_heads": 1, "global_head_dim": 32,
                                           "attention_k_eq_v": True, "hidden_size_per_layer_input": 0, "rope_parameters": GEMMA4_ROPE,
                                           "use_bidirectional_attention": "vision", "num_kv_shared_layers": 0, "enable_moe_block": False,
                                           "pad_token_id": 3},
                           "vision_config": {**GEMMA4_VISION, "model_type": "gemma4_vision", "standardize": True, "use_clipped_linears": False}},
    "tiny-gemma4-e-vision": {"model_type": "gemma4", "architectures": ["Gemma4ForConditionalGeneration"], "tie_word_embeddings": True, **GEMMA4_IDS,
                             "text_config": {**GEMMA_TEXT, "model_type": "gemma4_text", "global_head_dim": 32, "attention_k_eq_v": False,
                                             "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCAB,
                                             "rope_parameters": GEMMA4_ROPE, "num_kv_shared_layers": 0, "enable_moe_block": False,
                                             "pad_token_id": 3},
                             "vision_config": {**GEMMA4_VISION, "model_type": "gemma4_vision", "standardize": False, "use_clipped_linears": True}},
    "tiny-llama4-vision": {"model_type": "llama4", "architectures": ["Llama4ForConditionalGeneration"], "image_token_index": IMAGE,
                           "boi_token_index": BEGIN, "eoi_token_index": END, "tie_word_embeddings": False,
                           "text_config": {**TEXT, "model_type": "llama4_text", "num_local_experts": 4, "num_experts_per_tok": 1,
                                           "intermediate_size_mlp": 40, "interleave_moe_layer_step": 1, "attention_chunk_size": 32,
                                           "no_rope_layers": [1, 1, 0], "attn_temperature_tuning": True, "floor_scale": 16, "attn_scale": 0.1,
                                           "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}, "attention_bias": False},
                           "vision_config": {"model_type": "llama4_vision_model", "hidden_size": 16, "intermediate_size": 64,
                                             "num_hidden_layers": 2, "num_attention_heads": 2, "num_channels": 3, "image_size": 16,
                                             "patch_size": 4, "pixel_shuffle_ratio": 0.5, "projector_input_dim": 20,
                                             "projector_output_dim": 20, "vision_output_dim": 20,
                                             "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}},
    "tiny-mistral3-vision": {"model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"], "image_token_index": IMAGE,
                             "spatial_merge_size": 2, "multimodal_projector_bias": False, "projector_hidden_act": "gelu",
                             "vision_feature_layer": -1, "tie_word_embeddings": False,
                             "text_config": {**TEXT, "model_type": "mistral", "sliding_window": None,
                                             "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}},
                             "vision_config": {"model_type": "pixtral", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
                                               "num_attention_heads": 2, "head_dim": 8, "image_size": 64, "patch_size": 4,
                                               "hidden_act": "silu", "num_channels": 3,
                                               "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0}}},
    "tiny-paddleocr-vl": {"model_type": "paddleocr_vl", "architectures": ["PaddleOCRVLForConditionalGeneration"], **QWEN_IDS,
                          "tie_word_embeddings": False,
                          "text_config": {**TEXT, "model_type": "paddleocr_vl_text", "use_bias": False,
                                          "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0, "mrope_section": [2, 3, 3]}},
                          "vision_config": {**SIGLIP, "model_type": "paddleocr_vl_vision", "image_size": 20, "spatial_merge_size": 2,
                                            "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0}}},
    "tiny-qwen2.5-vl": {"model_type": "qwen2_5_vl", "architectures": ["Qwen2_5_VLForConditionalGeneration"], **QWEN_IDS,
                        "tie_word_embeddings": False,
                        "text_config": {**{k: v for k, v in TEXT.items() if k != "head_dim"}, "model_type": "qwen2_5_vl_text", "hidden_size": 64,
                                        "use_sliding_window": False, "sliding_window": None,
                                        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0, "mrope_section": [2, 3, 3]}},
                        "vision_config": {**QWEN, "model_type": "qwen2_5_vl_vision", "out_hidden_size": 64, "window_size": 16, "fullatt_block_indexes": [1],
                                          "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0}}},
    "tiny-qwen3-vl": {"model_type": "qwen3_vl", "architectures": ["Qwen3VLForConditionalGeneration"], **QWEN_IDS, "tie_word_embeddings": False,
                      "text_config": {**TEXT, "model_type": "qwen3_vl_text",
                                      "rope_parameters": {"rope_type": "default", "rope_theta": 5000000.0, "mrope_section": [4, 2, 2],
                                                          "mrope_interleaved": True}},
                      "vision_config": {**QWEN, "model_type": "qwen3_vl_vision", "num_position_embeddings": 25,
                                        "deepstack_visual_indexes": [0, 2], "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0}}},
    "tiny-qwen3-vl-moe": {"model_type": "qwen3_vl_moe", "architectures": ["Qwen3VLMoeForConditionalGeneration"], **QWEN_IDS,
                          "tie_word_embeddings": False,
                          "text_config": {**TEXT, "model_type": "qwen3_vl_moe_text", "num_experts": 6, "num_experts_per_tok": 2,
                                          "moe_intermediate_size": 24, "mlp_only_layers": [2],
                                          "rope_parameters": {"rope_type": "default", "rope_theta": 5000000.0, "mrope_section": [4, 2, 2],
                                                              "mrope_interleaved": True}},
                          "vision_config": {**QWEN, "model_type": "qwen3_vl_moe_vision", "num_position_embeddings": 25,
                                            "deepstack_visual_indexes": [0, 2], "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0}}},
    "tiny-qwen3.5-vl": {"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"], **QWEN_IDS, "tie_word_embeddings": False,
                        "text_config": {**TEXT, "model_type": "qwen3_5_text", "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
                                        "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"],
                                        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 16, "linear_num_key_heads": 2,
                                        "linear_num_value_heads": 2, "linear_value_head_dim": 16,
                                        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0, "partial_rotary_factor": 0.5,
                                                            "mrope_section": [4, 2, 2], "mrope_interleaved": True}},
                        "vision_config": {**QWEN, "model_type": "qwen3_5_vision", "num_position_embeddings": 25,
                                          "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0}}},
    "tiny-qwen2-vl": {"model_type": "qwen2_vl", "architectures": ["Qwen2VLForConditionalGeneration"], **QWEN_IDS, "tie_word_embeddings": False,
                      "text_config": {**{k: v for k, v in TEXT.items() if k != "head_dim"}, "model_type": "qwen2_vl_text", "hidden_size": 64,
                                      "use_sliding_window": False, "sliding_window": None,
                                      "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0, "mrope_section": [2, 3, 3]}},
                      "vision_config": {"model_type": "qwen2_vl_vision", "depth": 2, "embed_dim": 16, "hidden_size": 64, "mlp_ratio": 2, "num_heads": 2,
                                        "in_channels": 3, "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2,
                                        "hidden_act": "quick_gelu", "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0}}},
    "tiny-glm-ocr": {"model_type": "glm_ocr", "architectures": ["GlmOcrForConditionalGeneration"], **GLM_IDS, "tie_word_embeddings": False,
                     "text_config": {**TEXT, "model_type": "glm_ocr_text",
                                     "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3],
                                                         "partial_rotary_factor": 1.0}},
                     "vision_config": {**QWEN, "model_type": "glm_ocr_vision", "depth": 2, "attention_bias": True, "hidden_act": "silu",
                                       "rms_norm_eps": 1e-5, "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0}}},
    "tiny-glm4v": {"model_type": "glm4v", "architectures": ["Glm4vForConditionalGeneration"], **GLM_IDS, "tie_word_embeddings": False,
                   "text_config": {**{k: v for k, v in TEXT.items() if k != "head_dim"}, "model_type": "glm4v_text", "hidden_size": 64,
                                   "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2],
                                                       "partial_rotary_factor": 0.5}},
                   "vision_config": {**QWEN, "model_type": "glm4v_vision", "depth": 2, "out_hidden_size": 64, "image_size": 20, "hidden_act": "silu",
                                     "rms_norm_eps": 1e-5, "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0}}},
    "tiny-glm4v-moe": {"model_type": "glm4v_moe", "architectures": ["Glm4vMoeForConditionalGeneration"], **GLM_IDS, "tie_word_embeddings": False,
                       "text_config": {**TEXT, "model_type": "glm4v_moe_text", "num_hidden_layers": 2, "n_routed_experts": 4,
                                       "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_shared_experts": 1, "first_k_dense_replace": 1,
                                       "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.5,
                                       "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2],
                                                           "partial_rotary_factor": 0.5}},
                       "vision_config": {**QWEN, "model_type": "glm4v_moe_vision", "depth": 1, "image_size": 20, "hidden_act": "silu",
                                         "rms_norm_eps": 1e-5, "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0}}},
    "tiny-llava-clip": {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "image_token_index": IMAGE,
                        "tie_word_embeddings": False,
                        "text_config": {**TEXT, "model_type": "llama", "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
                        "vision_config": {**SIGLIP, "model_type": "clip_vision_model", "num_hidden_layers": 3, "image_size": 16,
                                          "projection_dim": 8}},
    "tiny-llava-siglip": {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "image_token_index": IMAGE,
                          "vision_feature_layer": -1, "vision_feature_select_strategy": "full", "tie_word_embeddings": True,
                          "text_config": {**{k: v for k, v in TEXT.items() if k != "head_dim"}, "model_type": "qwen2", "hidden_size": 64,
                                          "use_sliding_window": False, "sliding_window": None, "tie_word_embeddings": True,
                                          "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}},
                          "vision_config": {**SIGLIP, "model_type": "siglip_vision_model", "image_size": 16, "vision_use_head": False}},
    "tiny-llava-pixtral": {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "image_token_index": IMAGE,
                           "vision_feature_layer": -1, "vision_feature_select_strategy": "full", "tie_word_embeddings": False,
                           "text_config": {**TEXT, "model_type": "mistral", "sliding_window": None,
                                           "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}},
                           "vision_config": {"model_type": "pixtral", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
                                             "num_attention_heads": 2, "head_dim": 8, "image_size": 64, "patch_size": 4, "hidden_act": "silu",
                                             "num_channels": 3, "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0}}},
    "tiny-llava-next": {"model_type": "llava_next", "architectures": ["LlavaNextForConditionalGeneration"], "image_token_index": IMAGE,
                        "image_grid_pinpoints": [[16, 32], [32, 16], [32, 32]], "tie_word_embeddings": False,
                        "text_config": {**TEXT, "model_type": "mistral", "sliding_window": None,
                                        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
                        "vision_config": {**SIGLIP, "model_type": "clip_vision_model", "num_hidden_layers": 3, "image_size": 16,
                                          "projection_dim": 8}},
    "tiny-granite-vision": {"model_type": "llava_next", "architectures": ["LlavaNextForConditionalGeneration"], "image_token_index": IMAGE,
                            "image_grid_pinpoints": [[17, 34], [34, 17], [34, 34]], "tie_word_embeddings": True,
                            "vision_feature_layer": [-4, -2, -1], "vision_feature_select_strategy": "full",
                            "text_config": {**{k: v for k, v in TEXT.items() if k != "head_dim"}, "model_type": "granite", "hidden_size": 64,
                                            "embedding_multiplier": 2.0, "logits_scaling": 1.0, "residual_multiplier": 0.5,
                                            "attention_multiplier": 0.25, "tie_word_embeddings": True,
                                            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
                            "vision_config": {**SIGLIP, "model_type": "siglip_vision_model", "num_hidden_layers": 4, "image_size": 17,
                                              "vision_use_head": False}},
    "tiny-internvl": {"model_type": "internvl", "architectures": ["InternVLForConditionalGeneration"], "image_token_id": IMAGE,
                      "image_seq_length": 4, "downsample_ratio": 0.5, "tie_word_embeddings": False,
                      "text_config": {**TEXT, "model_type": "qwen3", "use_sliding_window": False, "sliding_window": None,
                                      "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}},
                      "vision_config": {**SIGLIP, "model_type": "internvl_vision", "image_size": [16, 16], "patch_size": [4, 4],
                                        "attention_bias": True, "hidden_act": "gelu"}},
    # The multimodal class does not apply logit_scale, unlike the class of the text part; with 1 both agree.
    "tiny-aya-vision": {"model_type": "aya_vision", "architectures": ["AyaVisionForConditionalGeneration"], "image_token_index": IMAGE,
                        "downsample_factor": 2, "alignment_intermediate_size": 48, "vision_feature_layer": -1,
                        "vision_feature_select_strategy": "full", "tie_word_embeddings": True,
                        "text_config": {**{k: v for k, v in TEXT.items() if k not in ("head_dim", "rms_norm_eps")}, "model_type": "cohere2",
                                        "hidden_size": 64, "layer_norm_eps": 1e-5, "logit_scale": 1.0, "sliding_window": 20,
                                        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                                        "tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
                        "vision_config": {**SIGLIP, "model_type": "siglip_vision_model", "image_size": 16, "vision_use_head": False}},
    "tiny-kimi-k25": {"model_type": "kimi_k25", "architectures": ["KimiK25ForConditionalGeneration"], "image_token_id": IMAGE,
                      "projection_hidden_size": 16, "tie_word_embeddings": False,
                      "text_config": {**{k: v for k, v in TEXT.items() if k != "head_dim"}, "model_type": "deepseek_v3",
                                      "num_key_value_heads": 4, "moe_intermediate_size": 16, "kv_lora_rank": 32, "q_lora_rank": 24,
                                      "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 8,
                                      "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1,
                                      "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
                                      "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0}},
                      "vision_config": {"model_type": "kimi_k25_vision", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
                                        "num_attention_heads": 2, "patch_size": 4, "pos_emb_height": 5, "pos_emb_width": 5,
                                        "merge_kernel_size": [2, 2], "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0}}},
    "tiny-idefics3": {"model_type": "idefics3", "architectures": ["Idefics3ForConditionalGeneration"], "image_token_id": IMAGE, "scale_factor": 3,
                      "tie_word_embeddings": False,
                      "text_config": {**TEXT, "model_type": "llama", "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
                      "vision_config": {**SIGLIP, "model_type": "idefics3_vision", "image_size": 36}},
    "tiny-lfm2-vl": {"model_type": "lfm2_vl", "architectures": ["Lfm2VlForConditionalGeneration"], "image_token_id": IMAGE, "downsample_factor": 2,
                     "projector_hidden_size": 24, "tie_word_embeddings": True,
                     "text_config": {**{k: v for k, v in TEXT.items() if k not in ("head_dim", "rms_norm_eps")}, "model_type": "lfm2",
                                     "hidden_size": 64, "norm_eps": 1e-5, "block_auto_adjust_ff_dim": False,
                                     "layer_types": ["conv", "full_attention", "conv"], "tie_word_embeddings": True,
                                     "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}},
                     "vision_config": {**SIGLIP, "model_type": "siglip2_vision_model", "num_patches": 25, "vision_use_head": False}},
}
# Also made with "-wide" after the name: heads of 16 elements in the tower, the minimum that device kernels support.
WIDE = ("tiny-gemma3-vision", "tiny-gemma4-vision", "tiny-llama4-vision", "tiny-mistral3-vision", "tiny-paddleocr-vl", "tiny-qwen2.5-vl",
        "tiny-qwen3-vl", "tiny-internvl")
QWEN_LIKE = ("tiny-paddleocr-vl", "tiny-qwen2.5-vl", "tiny-qwen3-vl", "tiny-qwen3-vl-moe", "tiny-qwen3.5-vl", "tiny-qwen2-vl", "tiny-glm-ocr",
             "tiny-glm4v", "tiny-glm4v-moe")
# Rows and columns of patches, for each image of each case.
SQUARE = [[(4, 4)], [(4, 4), (4, 4)]]
# LLaVA-NeXT, by seed: height and width of an image, rows and columns of its tiles, and the range of their patches that is
# kept.
CANVASES = {11: ((14, 40), (1, 2), (1, 0, 2, 8)), 21: ((20, 31), (2, 2), (1, 0, 6, 8)), 22: ((12, 12), (1, 2), (0, 2, 4, 4))}
GRIDS = {"tiny-llava-clip": SQUARE, "tiny-llava-siglip": SQUARE, "tiny-llava-next": SQUARE, "tiny-granite-vision": SQUARE, "tiny-internvl": SQUARE,
         "tiny-aya-vision": SQUARE,
         "tiny-idefics3": [[(9, 9), (9, 9), (9, 9)], [(9, 9)]], "tiny-gemma3-vision": [[(6, 6)], [(6, 6), (6, 6)]], "tiny-llama4-vision": [[(4, 4)], [(4, 4), (4, 4)]],
         "tiny-gemma4-vision": [[(6, 9)], [(9, 3), (6, 6)]], "tiny-gemma4-e-vision": [[(6, 9)], [(9, 3), (6, 6)]]}
OTHER_GRIDS = [[(6, 10)], [(8, 4), (2, 6)]]
# Other seeds for models that would generate the image token with the default seed, which transformers refuses.
SEEDS = {"tiny-internvl": 1, "tiny-idefics3": 1}


def pixels(seed, count):
    """Numbers from -1 to 1, equal to those of VisionPixels in vision_testing.h."""
    values, state = [], seed * 2654435761 % 2**32
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        values.append((state >> 16) / 32768 - 1)
    return torch.tensor(values, dtype=torch.float32)


def image_of(name, grid, seed):
    """Returns pixel values, their shape in the golden file, the token ids of the image, and the marks of rows."""
    rows, cols = grid
    patch = 4
    merge = {"tiny-gemma4-vision": 3, "tiny-gemma4-e-vision": 3, "tiny-idefics3": 3}.get(name, 1 if "llava" in name or "granite" in name else 2)
    count = rows * cols // merge**2
    if name in QWEN_LIKE:
        shape = [rows * cols, 3, patch, patch] if name == "tiny-paddleocr-vl" else [rows * cols, 3 * 2 * patch**2]
        ids, marks = [BEGIN] + [IMAGE] * count + [END], [0] + [1] * count + [0]
    elif name == "tiny-kimi-k25":
        shape = [rows * cols, 3, patch, patch]
        ids, marks = [BEGIN] + [IMAGE] * count + [END], [0] + [1] * count + [0]
    elif "gemma4" in name:
        shape = [rows * cols, 3 * patch**2]
        ids, marks = [BEGIN] + [IMAGE] * count + [END], [0] + [1] * count + [0]
    elif name == "tiny-llama4-vision":
        shape = [3, 3, rows * patch, cols * patch]  # two tiles and the whole image
        ids, marks = [BEGIN], [0]
        for _ in range(3):
            ids, marks = ids + [IMAGE] * count + [107], marks + [1] * count + [0]
    elif name in ("tiny-llava-next", "tiny-granite-vision"):
        _, tiles, kept = CANVASES[seed]
        more = 1 if "granite" in name else 0  # pixels that fill no whole patch
        shape = [tiles[0] * tiles[1] + 1, 3, rows * patch + more, cols * patch + more]
        ids = [IMAGE] * (count + kept[2] * (kept[3] + 1))
        marks = [1] * len(ids)
    elif name == "tiny-internvl":
        shape = [3, 3, rows * patch, cols * patch]  # two tiles and the whole image
        ids, marks = [BEGIN] + [IMAGE] * count * 3 + [END], [0] + [1] * count * 3 + [0]
    elif name == "tiny-lfm2-vl":
        shape = [rows * cols, 3 * patch**2]
        ids, marks = [IMAGE] * count, [1] * count
    elif name == "tiny-idefics3":
        shape = [1, 3, rows * patch, cols * patch]
        ids, marks = [BEGIN, 107] + [IMAGE] * count, [0, 0] + [1] * count
    elif name in ("tiny-mistral3-vision", "tiny-llava-pixtral"):
        shape = [3, rows * patch, cols * patch]
        ids, marks = [], []
        for _ in range(rows // merge):
            ids, marks = ids + [IMAGE] * (cols // merge) + [END], marks + [1] * (cols // merge) + [0]
    else:
        shape = [1, 3, rows * patch, cols * patch]
        ids, marks = [BEGIN] + [IMAGE] * count + [END], [0] + [1] * count + [0]
    number = 1
    for size in shape:
        number *= size
    return pixels(seed, number).reshape(shape), shape, ids, marks


def inputs_of(name, images, prompt):
    ids = torch.tensor([prompt])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    values, grids = [image[0] for image in images], [image[4] for image in images]
    types = (ids == IMAGE).long()
    if name in QWEN_LIKE:
        inputs["pixel_values"] = torch.cat(values)
        inputs["image_grid_thw"] = torch.tensor([[1, rows, cols] for rows, cols in grids])
        inputs["mm_token_type_ids"] = types
    elif "gemma4" in name:
        longest = max(value.shape[0] for value in values)
        padded, places = torch.zeros(len(values), longest, values[0].shape[1]), torch.full((len(values), longest, 2), -1)
        for i, (value, (rows, cols)) in enumerate(zip(values, grids)):
            padded[i, : value.shape[0]] = value
            for index in range(rows * cols):
                places[i, index] = torch.tensor([index % cols, index // cols])
        inputs |= {"pixel_values": padded, "image_position_ids": places, "mm_token_type_ids": types}
    elif name in ("tiny-llava-next", "tiny-granite-vision"):
        most = max(value.shape[0] for value in values)
        inputs["pixel_values"] = torch.stack([torch.cat([value, torch.zeros(most - value.shape[0], *value.shape[1:])]) for value in values])
        inputs["image_sizes"] = torch.tensor([list(CANVASES[image[5]][0]) for image in images])
    elif name == "tiny-kimi-k25":
        inputs["pixel_values"] = torch.cat(values)
        inputs["image_grid_thw"] = torch.tensor([[1, rows, cols] for rows, cols in grids])
    elif name == "tiny-idefics3":
        inputs["pixel_values"] = torch.cat(values).unsqueeze(0)
    elif name == "tiny-lfm2-vl":
        longest = max(value.shape[0] for value in values)
        padded, mask = torch.zeros(len(values), longest, values[0].shape[1]), torch.zeros(len(values), longest, dtype=torch.int32)
        for i, value in enumerate(values):
            padded[i, : value.shape[0]], mask[i, : value.shape[0]] = value, 1
        inputs |= {"pixel_values": padded, "pixel_attention_mask": mask, "spatial_shapes": torch.tensor([list(grid) for grid in grids])}
    elif name in ("tiny-mistral3-vision", "tiny-llava-pixtral"):
        height, width = max(v.shape[1] for v in values), max(v.shape[2] for v in values)
        padded = torch.zeros(len(values), 3, height, width)
        for i, value in enumerate(values):
            padded[i, :, : value.shape[1], : value.shape[2]] = value
        inputs |= {"pixel_values": padded, "image_sizes": torch.tensor([list(value.shape[1:]) for value in values])}
    else:
        inputs["pixel_values"] = torch.cat(values)
        if name == "tiny-gemma3-vision":
            inputs["token_type_ids"] = types
    return inputs


def randomize(model, generator):
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        with torch.no_grad():
            if "norm" in name and parameter.dim() == 1 and name.endswith("weight"):
                base = 0.0 if "gemma3" in type(model).__module__ and "vision_tower" not in name else 1.0
                parameter.copy_(base + 0.1 * noise)
            elif parameter.dim() < 2:
                parameter.copy_(0.1 * noise)
            else:
                parameter.copy_(noise / max(parameter[0].numel(), 1) ** 0.5)
    for name, buffer in model.named_buffers():
        bounds = {"input_min": -1.5, "output_min": -2.0, "input_max": 1.25, "output_max": 1.75}
        for end, value in bounds.items():
            if name.endswith(end):
                buffer.fill_(value)
        if name.endswith(("std_bias", "e_score_correction_bias")):
            buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))
        if name.endswith("std_scale"):
            buffer.copy_(1 + 0.1 * torch.randn(buffer.shape, generator=generator))


def greedy(model, name, images, prompt, count):
    """Greedy decoding; each step recomputes the whole sequence."""
    tokens, margins = list(prompt), []
    for _ in range(count):
        with torch.no_grad():
            row = model(**inputs_of(name, images, tokens)).logits[0, -1].float()
        top = row.topk(2).values
        margins.append((top[0] - top[1]).item())
        tokens.append(int(row.argmax()))
    return tokens[len(prompt):], margins


def widen(vision):
    for field in ("hidden_size", "head_dim"):
        if field in vision:
            vision[field] *= 2
    if "pixel_shuffle_ratio" in vision:  # Llama 4: the width after pixel shuffle
        vision["intermediate_size"] *= 2
    for field in ("projector_input_dim", "projector_output_dim", "vision_output_dim"):
        if field in vision:
            vision[field] = 24


def make(name, folder):
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()) + SEEDS.get(name, 0))
    is_wide, name = name.endswith("-wide"), name.removesuffix("-wide")
    settings = json.loads(json.dumps(VARIANTS[name]))
    if is_wide:
        widen(settings["vision_config"])
    config = AutoConfig.for_model(settings["model_type"], **{k: v for k, v in settings.items() if k not in ("model_type", "architectures")})
    config._attn_implementation = "eager"
    model = AutoModelForImageTextToText.from_config(config, attn_implementation="eager").float().eval()
    randomize(model, generator)
    folder.mkdir(parents=True, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    # One layer's experts have the published layout, the other's have the layout that transformers saves.
    if name == "tiny-qwen3-vl-moe":
        state = load_file(folder / "model.safetensors")
        state = {key: value.transpose(1, 2).contiguous() if "layers.0.mlp.experts" in key else value for key, value in state.items()}
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    if name == "tiny-kimi-k25":  # transformers does not undo all of its renaming of the published names
        renamed = {"model.mm_projector.": "mm_projector.", "vision_tower.encoder.patch_embed.": "vision_tower.patch_embed.",
                   "language_model.model.blocks.": "language_model.model.layers."}
        state = load_file(folder / "model.safetensors")
        for old, new in renamed.items():
            state = {key.replace(old, new): value for key, value in state.items()}
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((folder / "config.json").read_text())
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    (folder / "generation_config.json").unlink(missing_ok=True)
    if name == "tiny-llama4-vision":  # its forward reads an attribute that the text part's output lacks
        text = model.language_model.forward

        def forward(*args, **kwargs):
            output = text(*args, **kwargs)
            object.__setattr__(output, "image_outputs", None)
            return output

        model.language_model.forward = forward
    grids = GRIDS.get(name, OTHER_GRIDS)
    cases = []
    for index, case_grids in enumerate([[], *grids]):
        prompt = torch.randint(3, 99, (7,), generator=generator).tolist()
        images, told = [], []
        for i, grid in enumerate(case_grids):
            values, shape, ids, marks = image_of(name, grid, seed=10 * index + i + 1)
            told.append({"position": len(prompt), "seed": 10 * index + i + 1, "shape": shape, "grid": [1, *grid],
                         "is_embedding": marks})
            if name in ("tiny-llava-next", "tiny-granite-vision"):
                _, told[-1]["tiles"], told[-1]["kept"] = CANVASES[10 * index + i + 1]
            images.append((values, shape, ids, marks, grid, 10 * index + i + 1))
            prompt += ids + torch.randint(3, 99, (5 + 4 * i,), generator=generator).tolist()
        with torch.no_grad():
            inputs = inputs_of(name, images, prompt) if images else {"input_ids": torch.tensor([prompt])}
            logits = model(**inputs).logits[0].float()
        positions = sorted({0, 6, *(image["position"] + offset for image in told for offset in (1, 3, len(image["is_embedding"]))),
                            len(prompt) - 2, len(prompt) - 1})
        tokens, margins = greedy(model, name, images, prompt, 6) if images else ([], [])
        case = reduce_case({"prompt": prompt, "positions": positions, "logits": logits[positions].tolist(), "greedy": tokens, "margin": margins})
        case["images"] = told
        cases.append(case)
    (folder / "golden_images.json").write_text(json.dumps({"cases": cases}, separators=(",", ":")) + "\n")
    print(folder.name, sum(file.stat().st_size for file in folder.iterdir()) // 1024, "KiB", [len(case["prompt"]) for case in cases])


def main():
    folder, *names = arguments(__doc__)
    target = pathlib.Path(folder)
    for name in names or [*VARIANTS, *(name + "-wide" for name in WIDE)]:
        make(name, target / name)


if __name__ == "__main__":
    main()
