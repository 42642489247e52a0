#!/usr/bin/env python3
"""Makes small random LoRA adapters in peft's layout for test checkpoints, with golden logits from peft in float32.

    v/bin/pip install torch transformers peft
    v/bin/python tools/checkpoints/make_adapters.py tests/data/checkpoints tests/data/adapters [NAME...]

adapter_config.json and adapter_model.safetensors are written by peft's save_pretrained, with values rounded to BF16.
golden.json: logits with an unmerged adapter; golden_merged.json: logits after merge_and_unload(). Weights of a quantized base are decoded
by decode_weights.py.
"""
import json
import pathlib
import sys
import zlib

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from arguments import arguments  # noqa: E402
from decode_weights import decode, load  # noqa: E402
from make_variants import golden_case  # noqa: E402

PROMPT_LENGTHS = (1, 7, 40)

# The base, and the arguments of LoraConfig.
ADAPTERS = {
    # Every linear layer, some with their own ranks and alphas.
    "qwen3-linear": ("qwen3-bf16", {
        "r": 4, "lora_alpha": 6, "target_modules": "all-linear", "rank_pattern": {"v_proj": 3, "layers.1.mlp.down_proj": 7},
        "alpha_pattern": {r"layers\.0\.self_attn\.q_proj": 20, "gate_proj": 1},
    }),
    # target_modules as a regular expression; scaled by alpha / sqrt(r).
    "qwen3-stabilized": ("qwen3-bf16", {
        "r": 8, "lora_alpha": 4, "use_rslora": True, "target_modules": r".*\.(q_proj|k_proj|up_proj)",
    }),
    # The embedding and the head.
    "llama-vocabulary": ("llama-bf16", {
        "r": 5, "lora_alpha": 5, "target_modules": ["embed_tokens", "lm_head", "o_proj"],
    }),
    # A scaled embedding that is tied to the head.
    "gemma3-linear": ("tiny-gemma3", {
        "r": 3, "lora_alpha": 6, "target_modules": ["embed_tokens", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    }),
    # Every linear layer, including those of per-layer embeddings, and the embedding.
    "gemma4-linear": ("tiny-gemma4-shared", {
        "r": 3, "lora_alpha": 6, "target_modules": ["embed_tokens", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
                                                    "per_layer_model_projection", "per_layer_input_gate", "per_layer_projection"],
    }),
    # Attention whose keys are also its values, and experts beside the MLP.
    "gemma4-experts": ("tiny-gemma4-experts", {
        "r": 3, "lora_alpha": 6, "target_modules": ["q_proj", "k_proj", "o_proj", "gate_proj", "down_proj"],
        "target_parameters": ["experts.gate_up_proj", "experts.down_proj"],
    }),
    # Projections that the checkpoint stores as one fused module.
    "phi3-fused": ("tiny-phi3-partial", {
        "r": 4, "lora_alpha": 8, "target_modules": ["qkv_proj", "gate_up_proj", "o_proj", "down_proj"],
    }),
    # The attention of a model with experts.
    "qwen3-moe-attention": ("tiny-qwen3-moe-mixed", {
        "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "o_proj"],
    }),
    # The gate of a shared expert, and the weight of the router.
    "qwen2-moe-gates": ("tiny-qwen2-moe", {
        "r": 3, "lora_alpha": 6, "target_modules": ["o_proj", "up_proj", "shared_expert_gate"], "target_parameters": ["mlp.gate.weight"],
    }),
    # A router that is a linear layer.
    "gemma4-router": ("tiny-gemma4-experts", {
        "r": 3, "lora_alpha": 6, "target_modules": "all-linear",
    }),
    # Tensors that contain all experts.
    "qwen3-moe-experts": ("tiny-qwen3-moe-mixed", {
        "r": 3, "lora_alpha": 6, "target_modules": ["q_proj"], "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
    }),
    # Experts with alternating rows of gate and up, stored transposed.
    "gpt-oss-experts": ("tiny-gpt-oss", {
        "r": 4, "lora_alpha": 4, "target_modules": ["v_proj"], "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
    }),
    # The adapter's own tables and norms; in the base, embedding and head are tied.
    "gemma2-saved": ("tiny-gemma2", {
        "r": 3, "lora_alpha": 6, "target_modules": ["q_proj", "up_proj"], "modules_to_save": ["embed_tokens", "lm_head", "norm"],
    }),
    # All biases, and a whole linear layer with a bias.
    "llama-saved": ("tiny-llama-bias", {
        "r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"], "bias": "all", "modules_to_save": ["o_proj", "gate_proj"],
    }),
    # The router, the gate of a shared expert, and attention biases.
    "qwen2-moe-saved": ("tiny-qwen2-moe", {
        "r": 3, "lora_alpha": 6, "target_modules": ["o_proj", "v_proj"], "bias": "all", "modules_to_save": ["gate", "k_proj"],
    }),
    # Norms over the full width of queries and keys.
    "olmo2-saved": ("tiny-olmo2", {
        "r": 3, "lora_alpha": 6, "target_modules": ["v_proj"], "modules_to_save": ["q_norm", "k_norm", "post_feedforward_layernorm", "lm_head"],
    }),
    # Norms of latent attention, and the projection after one.
    "deepseek-saved": ("tiny-deepseek-v3", {
        "r": 3, "lora_alpha": 6, "target_modules": ["o_proj", "q_a_proj"], "modules_to_save": ["q_a_layernorm", "kv_a_layernorm", "q_b_proj"],
    }),
    # A base with FP8 weights.
    "qwen3-fp8": ("qwen3-modelopt-fp8", {
        "r": 4, "lora_alpha": 8, "target_modules": "all-linear",
    }),
}


def decoded(folder):
    """The checkpoint's weights as float32."""
    tensors = load(folder)
    state = {}
    for name, tensor in tensors.items():
        if not name.endswith(".weight"):
            continue
        scale = tensors.get(name + "_scale")
        state[name] = torch.from_numpy(np.array(decode(tensor, scale, None, False)))
    return state


def base_model(folder):
    settings = json.loads((folder / "config.json").read_text())
    if "quantization_config" not in settings:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    keys = {key: value for key, value in settings.items() if key not in ("model_type", "architectures", "quantization_config", "dtype")}
    config = AutoConfig.for_model(settings["model_type"], **keys)
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).float().eval()
    model.load_state_dict(decoded(folder))
    return model


def write_golden(model, prompts, path):
    cases = [golden_case(model, prompt) for prompt in prompts]
    path.write_text(json.dumps({"cases": cases}, separators=(",", ":")) + "\n")


def make(name, checkpoints, folder):
    base_name, settings = ADAPTERS[name]
    base = base_model(checkpoints / base_name)
    vocab_size = base.config.vocab_size
    seed = zlib.crc32(name.encode())
    torch.manual_seed(seed)
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **settings))
    with torch.no_grad():
        for key, value in model.named_parameters():
            if "lora_" not in key:
                if value.requires_grad:  # modules_to_save and biases
                    value.add_(torch.randn_like(value) * (0.1 * value.abs().mean() + 0.01))
                continue
            # Large enough that the adapter affects the logits as much as the base does.
            is_table = "lora_embedding_A" in key
            fan_in = 1 if is_table else value.shape[1]
            value.normal_(std=(0.5 if is_table else 1.0) / fan_in**0.5)
    model.save_pretrained(folder, save_embedding_layers=False)
    stored = folder / "adapter_model.safetensors"
    save_file({key: value.to(torch.bfloat16).contiguous() for key, value in load_file(stored).items()}, stored, metadata={"format": "pt"})
    (folder / "README.md").unlink(missing_ok=True)
    config_path = folder / "adapter_config.json"
    config = json.loads(config_path.read_text())
    config["base_model_name_or_path"] = base_name
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()  # peft keeps a set, without a fixed order
    config_path.write_text(json.dumps(config, indent=2) + "\n")
    model = PeftModel.from_pretrained(base_model(checkpoints / base_name), folder).float().eval()
    generator = torch.Generator().manual_seed(seed)
    prompts = [torch.randint(3, min(vocab_size, 500), (length,), generator=generator).tolist() for length in PROMPT_LENGTHS]
    write_golden(model, prompts, folder / "golden.json")
    # If embedding and head are tied, merging an adapter of one would change both.
    tables = [*settings["target_modules"], *settings.get("modules_to_save", [])]
    if not (base.config.tie_word_embeddings and "embed_tokens" in tables):
        write_golden(model.merge_and_unload(), prompts, folder / "golden_merged.json")


# Adapters with a module for each expert, for models with such modules; split from an adapter with tensors of all
# experts.
SPLIT = {"qwen3-moe-each": "qwen3-moe-experts"}


def split(source, folder):
    tensors = {}
    for name, tensor in load_file(source / "adapter_model.safetensors").items():
        module, factor = name.rsplit(".lora_", 1)
        if not module.removesuffix(".base_layer").endswith(".experts"):
            tensors[name] = tensor
            continue
        is_down = module.endswith(".experts")  # peft nests two wrappers: the outer one is down_proj's
        config = json.loads((source / "adapter_config.json").read_text())
        rank = config["r"]
        experts = (tensor.shape[0] if factor == "A.weight" else tensor.shape[1]) // rank
        for expert in range(experts):
            prefix = "%s.%d." % (module.removesuffix(".base_layer"), expert)
            if factor == "A.weight":
                part = tensor[expert * rank:(expert + 1) * rank]
                parts = {"down_proj": part} if is_down else {"gate_proj": part, "up_proj": part}
            else:
                part = tensor[:, expert::experts]
                parts = {"down_proj": part} if is_down else dict(zip(("gate_proj", "up_proj"), part.chunk(2)))
            tensors |= {prefix + key + ".lora_" + factor: value.clone().contiguous() for key, value in parts.items()}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config["target_parameters"] = None
    config["target_modules"] += ["down_proj", "gate_proj", "up_proj"]
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "golden.json").write_text((source / "golden.json").read_text())


def main():
    torch.set_num_threads(1)
    given = arguments(__doc__, least=2)
    checkpoints, target = map(pathlib.Path, given[:2])
    for name in given[2:] or [*ADAPTERS, *SPLIT]:
        if name in SPLIT:
            split(target / SPLIT[name], target / name)
        else:
            make(name, checkpoints, target / name)


if __name__ == "__main__":
    main()
