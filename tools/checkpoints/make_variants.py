#!/usr/bin/env python3
"""Makes tiny random checkpoints of shapes that published models have, with golden logits by transformers in float32.

    make_variants.py tests/data/checkpoints [name ...]

Needs torch, transformers and safetensors. Each is seeded by its name, so a second run writes the same files.
"""
import json
import pathlib
import sys
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
DTYPES = {"tiny-llama-bias": torch.float16, "tiny-llama-wide": torch.float32}  # the others: torch.bfloat16
PROMPT_LENGTHS = (1, 21, 70)
NEW_TOKENS = 16


def randomize(model, generator):
    """Weights that give attention and MLP a say of their own, and norms and biases away from one and zero."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith("norm.weight"):
            parameter.data = 1 + 0.3 * noise
        elif name.endswith(".bias"):
            parameter.data = 0.3 * noise
        else:
            parameter.data = noise / parameter.shape[1] ** 0.5


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
    keys = {key: value for key, value in settings.items() if key not in ("model_type", "architectures")}
    config = AutoConfig.for_model(settings["model_type"], **keys)
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).float().eval()
    randomize(model, generator)
    state = {key: value.to(dtype).contiguous() for key, value in model.state_dict().items()}
    if settings["tie_word_embeddings"]:
        state.pop("lm_head.weight", None)
    # What is stored is what is computed with.
    model.load_state_dict({key: value.float() for key, value in state.items()}, strict=False)
    model.tie_weights()
    folder.mkdir(parents=True, exist_ok=True)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    written = {**settings, "torch_dtype": str(dtype).split(".")[-1]}
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
