#!/usr/bin/env python3
"""Makes tiny random checkpoints of shapes that published models have, with golden logits by transformers in float32.

    make_variants.py tests/data/checkpoints [name ...]

Needs torch, transformers and safetensors. Each is seeded by its name, so a second run writes the same files.
"""
import copy
import json
import pathlib
import sys
import tempfile
import zlib

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

sys.path.insert(0, str(pathlib.Path(__file__).parent))
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
PHI3 = {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "hidden_size": 128, "intermediate_size": 80, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 10000.0, "tie_word_embeddings": False, "pad_token_id": 0}
GPT_OSS = {**COMMON, **SMALL, "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "intermediate_size": 64,
           "num_hidden_layers": 2, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 24, "swiglu_limit": 2.0,
           "layer_types": ["sliding_attention", "full_attention"], "attention_bias": True, "rope_theta": 150000.0,
           "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24, "beta_fast": 32.0,
                            "beta_slow": 1.0, "truncate": False}, "tie_word_embeddings": False}

VARIANTS = {
    # Biases everywhere, a head of its own size, one KV head a query head, no scaling.
    "tiny-llama-bias": {**LLAMA, "hidden_size": 60, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 3,
                        "num_key_value_heads": 3, "head_dim": 40, "attention_bias": True, "mlp_bias": True, "rope_theta": 10000.0,
                        "tie_word_embeddings": False},
    # The widest head and the largest group; the llama3 scaling without a middle band.
    "tiny-llama-wide": {**LLAMA, "hidden_size": 50, "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 5,
                        "num_key_value_heads": 1, "head_dim": 256, "rope_theta": 500000.0, "tie_word_embeddings": True,
                        "rope_scaling": {"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
                                         "original_max_position_embeddings": 64}},
    # Attention biases beside the QK norm, head of 128, tied.
    "tiny-qwen3-bias": {**QWEN3, "hidden_size": 64, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 2,
                        "num_key_value_heads": 1, "head_dim": 128, "attention_bias": True, "rope_theta": 1000000.0,
                        "tie_word_embeddings": True},
    # Dense layers between those with experts, two experts a token, NoPE layers where no rule puts them, short chunks.
    "tiny-llama4-mixed": {**COMMON, "model_type": "llama4_text", "architectures": ["Llama4ForCausalLM"], "hidden_size": 64,
                          "intermediate_size": 32, "intermediate_size_mlp": 96, "num_hidden_layers": 5, "num_attention_heads": 4,
                          "num_key_value_heads": 2, "head_dim": 32, "num_local_experts": 6, "num_experts_per_tok": 2,
                          "interleave_moe_layer_step": 2, "no_rope_layers": [1, 1, 0, 1, 0], "attention_chunk_size": 16,
                          "floor_scale": 8, "attn_scale": 0.3, "attn_temperature_tuning": True, "use_qk_norm": True,
                          "attention_bias": False, "rope_theta": 10000.0, "tie_word_embeddings": False},
    # An MLP in the first layer, three experts a token whose weights are not normalized, experts in one tensor as transformers 5 holds them.
    "tiny-qwen3-moe-mixed": {**COMMON, "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 64,
                             "intermediate_size": 96, "moe_intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
                             "num_key_value_heads": 2, "head_dim": 32, "num_experts": 6, "num_experts_per_tok": 3,
                             "decoder_sparse_step": 1, "mlp_only_layers": [0], "norm_topk_prob": False, "attention_bias": False,
                             "rope_theta": 1000000.0, "tie_word_embeddings": True},
    # A window in every layer.
    "tiny-mistral-window": {**COMMON, "model_type": "mistral", "architectures": ["MistralForCausalLM"], "hidden_size": 48,
                            "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                            "head_dim": 32, "sliding_window": 24, "rope_theta": 10000.0, "tie_word_embeddings": False},
    # A window in the upper layer, biases on q, k and v.
    "tiny-qwen2-window": {**COMMON, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 64,
                          "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
                          "use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1, "rope_theta": 1000000.0,
                          "tie_word_embeddings": True},
    # Two layers with a window and a rope of their own to one without, an odd scale of q . k, the embedding as the head.
    "tiny-gemma3": {**GEMMA3, "num_hidden_layers": 4, "layer_types": ["sliding_attention", "sliding_attention", "full_attention",
                                                                      "sliding_attention"]},
    # Two experts a token, as published: one by one under block_sparse_moe.
    "tiny-mixtral": {**COMMON, **SMALL, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "intermediate_size": 48,
                     "num_hidden_layers": 2, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None,
                     "rope_theta": 1000000.0, "tie_word_embeddings": False},
    # A shared expert of another width with a gate, an MLP in one layer, weights that are not normalized.
    "tiny-qwen2-moe": {**COMMON, **SMALL, "model_type": "qwen2_moe", "architectures": ["Qwen2MoeForCausalLM"], "intermediate_size": 96,
                       "moe_intermediate_size": 32, "shared_expert_intermediate_size": 80, "num_hidden_layers": 2, "num_experts": 6,
                       "num_experts_per_tok": 3, "decoder_sparse_step": 1, "mlp_only_layers": [1], "norm_topk_prob": False,
                       "rope_theta": 1000000.0, "tie_word_embeddings": False},
    # Rope on three quarters of a head, a window, short factors.
    "tiny-phi3-partial": {**COMMON, **PHI3, "sliding_window": 24, "partial_rotary_factor": 0.75, "original_max_position_embeddings": 2048,
                          "rope_scaling": {"type": "longrope", "short_factor": [1.0 + 0.1 * i for i in range(12)],
                                           "long_factor": [1.0 + i for i in range(12)]}},
    # Contexts beyond the original one: long factors, over whole heads.
    "tiny-phi3-long": {**COMMON, **PHI3, "sliding_window": None, "original_max_position_embeddings": 32,
                       "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 16,
                                        "long_factor": [1.0 + 0.5 * i for i in range(16)]}},
    # Norms behind sub-layers alone, and over all heads.
    "tiny-olmo2": {**COMMON, **SMALL, "model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"], "intermediate_size": 80,
                   "num_hidden_layers": 2, "rope_theta": 10000.0, "tie_word_embeddings": False},
    # The same with windows, and YaRN in the layers without.
    "tiny-olmo3": {**COMMON, **SMALL, "model_type": "olmo3", "architectures": ["Olmo3ForCausalLM"], "intermediate_size": 80,
                   "num_hidden_layers": 3, "sliding_window": 24, "rope_theta": 500000.0, "tie_word_embeddings": False,
                   "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                   "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24}},
    # Factors on everything.
    "tiny-granite": {**COMMON, **SMALL, "model_type": "granite", "architectures": ["GraniteForCausalLM"], "intermediate_size": 80,
                     "num_hidden_layers": 2, "rope_theta": 10000.0, "tie_word_embeddings": True, "embedding_multiplier": 12.0,
                     "residual_multiplier": 0.22, "attention_multiplier": 0.05, "logits_scaling": 0.5, "attention_bias": False},
    # A dense Granite 4: other names, gate and up in one.
    "tiny-granite4": {**COMMON, **SMALL, "model_type": "granitemoehybrid", "architectures": ["GraniteMoeHybridForCausalLM"],
                      "intermediate_size": 64, "shared_intermediate_size": 80, "num_hidden_layers": 2, "num_local_experts": 0,
                      "num_experts_per_tok": 0, "layer_types": ["attention", "attention"], "position_embedding_type": "rope",
                      "rope_theta": 10000.0, "tie_word_embeddings": True, "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
                      "attention_multiplier": 0.05, "logits_scaling": 0.5},
    # A layer without rope.
    "tiny-smollm3": {**COMMON, **SMALL, "model_type": "smollm3", "architectures": ["SmolLM3ForCausalLM"], "intermediate_size": 80,
                     "num_hidden_layers": 3, "no_rope_layers": [1, 0, 1], "use_sliding_window": False, "pad_token_id": 0, "rope_theta": 50000.0,
                     "tie_word_embeddings": True},
    # Soft caps that bite, a window in the first layer.
    "tiny-gemma2": {**{key: value for key, value in GEMMA3.items() if key != "rope_parameters"}, "model_type": "gemma2",
                    "architectures": ["Gemma2ForCausalLM"], "num_hidden_layers": 2, "attn_logit_softcapping": 3.0,
                    "final_logit_softcapping": 8.0, "rope_theta": 10000.0},
    # Embeddings in every layer, the upper three layers without keys and values of their own and with wider MLPs.
    "tiny-gemma4-shared": {**GEMMA4, "num_hidden_layers": 5, "num_key_value_heads": 1, "num_kv_shared_layers": 3,
                           "use_double_wide_mlp": True, "hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 128,
                           "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
                                           "full_attention"]},
    # Experts beside the MLP, values that are keys, the widest heads in the layers that see everything, a cap of the logits.
    "tiny-gemma4-experts": {**GEMMA4, "num_hidden_layers": 3, "num_attention_heads": 2, "global_head_dim": 512, "num_key_value_heads": 2, "num_global_key_value_heads": 1,
                            "attention_k_eq_v": True, "hidden_size_per_layer_input": 0, "enable_moe_block": True, "num_experts": 6,
                            "top_k_experts": 2, "moe_intermediate_size": 32, "final_logit_softcapping": 8.0,
                            "layer_types": ["sliding_attention", "full_attention", "full_attention"]},
    # Half of a head rotated, an MLP in the first layer, a bias for the choice of experts, a shared one.
    "tiny-glm4-moe": {**COMMON, **SMALL, "model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"], "intermediate_size": 96,
                      "moe_intermediate_size": 48, "num_hidden_layers": 2, "n_routed_experts": 6, "num_experts_per_tok": 2,
                      "n_shared_experts": 1, "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.5,
                      "n_group": 1, "topk_group": 1, "use_qk_norm": True, "attention_bias": True, "partial_rotary_factor": 0.5,
                      "rope_theta": 10000.0, "tie_word_embeddings": False},
    # BF16 experts, and those of MXFP4.
    "tiny-gpt-oss": GPT_OSS,
    "tiny-gpt-oss-mxfp4": {**GPT_OSS, "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}},
    # The text part of a model of text and images, with a temperature that grows with the position.
    "tiny-ministral3": {**COMMON, **SMALL, "model_type": "ministral3", "architectures": ["Mistral3ForConditionalGeneration"],
                        "intermediate_size": 80, "num_hidden_layers": 2, "sliding_window": None, "tie_word_embeddings": False,
                        "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24,
                                            "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                                            "rope_theta": 10000.0, "llama_4_scaling_beta": 0.4}},
    # A soft cap of the logits.
    "tiny-gemma3-cap": {**GEMMA3, "num_hidden_layers": 1, "layer_types": ["full_attention"], "final_logit_softcapping": 5.0},
}
# Scalings of rope over the weights of a variant, with golden logits in golden_NAME.json: what --hf-overrides changes in
# its config.json. Few positions are original ones, so that short prompts are beyond them.
SCALED = "tiny-llama-bias"
SCALINGS = {
    "linear": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}, "max_position_embeddings": 24},
    "yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24}},
    "yarn_all": {"rope_theta": 50000.0,
                 "rope_parameters": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 48, "beta_fast": 12.0,
                                     "beta_slow": 0.5, "mscale": 1.5, "mscale_all_dim": 0.5, "truncate": False}},
}
# Families whose models transformers holds under other names than published checkpoints have.
PUBLISHED = ("mixtral", "qwen2_moe", "granitemoehybrid", "glm4_moe", "gpt_oss", "ministral3")
DTYPES = {"tiny-llama-bias": torch.float16, "tiny-llama-wide": torch.float32}  # the others: torch.bfloat16
PROMPT_LENGTHS = (1, 21, 70)
NEW_TOKENS = 16


def randomize(model, generator):
    """Weights that give attention and MLP a say of their own, and norms and biases away from one and zero."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith("norm.weight") or "layernorm_" in name or name.endswith("scale"):
            parameter.data = 1 + 0.3 * noise
        elif name.endswith(("bias", ".sinks")):
            parameter.data = 0.3 * noise
        else:
            parameter.data = noise / parameter.shape[1] ** 0.5


    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.data = 0.2 * torch.randn(buffer.shape, generator=generator)
        if name.endswith("layer_scalar"):
            buffer.data = 0.8 + 0.2 * torch.rand(buffer.shape, generator=generator)


def mxfp4_experts(state):
    """The experts as published: codes and powers of two of 32 inputs each; and in their place the values that they stand for."""
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


def published(model, state, settings, dtype):
    """The tensors under the names that published checkpoints give them, which transformers writes."""
    with tempfile.TemporaryDirectory() as scratch:
        # A copy: the frequencies of rope are rounded with it.
        copy.deepcopy(model).to(dtype).save_pretrained(scratch)
        written = load_file(pathlib.Path(scratch) / "model.safetensors")
    if settings["model_type"] == "ministral3":  # inside a model of text and images
        written = {"language_model." + name: value for name, value in written.items()}
        written["vision_tower.ln_pre.weight"] = torch.ones(8, dtype=dtype)
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
    keys = {key: value for key, value in settings.items() if key not in ("model_type", "architectures", "quantization_config")}
    config = AutoConfig.for_model(settings["model_type"], **keys)
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).float().eval()
    randomize(model, generator)
    state = {key: value.to(dtype).contiguous() for key, value in model.state_dict().items()}
    if settings["tie_word_embeddings"]:
        state.pop("lm_head.weight", None)
    experts = mxfp4_experts(state) if "quantization_config" in settings else {}
    # What is stored is what is computed with.
    model.load_state_dict({key: value.float() for key, value in state.items()}, strict=False)
    model.tie_weights()
    folder.mkdir(parents=True, exist_ok=True)
    if settings["model_type"] in PUBLISHED:
        state = published(model, state, settings, dtype)
    if experts:
        state = {key: value for key, value in state.items() if key + "_blocks" not in experts} | experts
    if name == "tiny-phi3-long":  # the table of the longest context, for sequences of all lengths
        rotary = model.model.rotary_emb
        rotary.inv_freq, _ = ROPE_INIT_FUNCTIONS["longrope"](config, rotary.inv_freq.device, seq_len=512)
        rotary.rope_type = "default"
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    written = {**settings, "torch_dtype": str(dtype).split(".")[-1]}
    if settings["model_type"] == "ministral3":
        text = {key: value for key, value in written.items() if key != "architectures"}
        written = {"architectures": settings["architectures"], "model_type": "mistral3", "text_config": text, "vision_config": {}}
    (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    prompts = [torch.randint(3, settings["vocab_size"], (length,), generator=generator).tolist() for length in PROMPT_LENGTHS]
    cases = [golden_case(model, prompt) for prompt in prompts]
    (folder / "golden.json").write_text(json.dumps({"cases": cases}, separators=(",", ":")) + "\n")


def make_scaled(name, folder):
    """Golden logits of a scaling. Dynamic scaling is that of the longest context, as vLLM's table has it: transformers' own
    changes with the length of the sequence, and keys in a cache would not."""
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


def main():
    target = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:] or [*VARIANTS, *SCALINGS]:
        if name in VARIANTS:
            make(name, target / name)
        else:
            make_scaled(name, target / SCALED)


if __name__ == "__main__":
    main()
