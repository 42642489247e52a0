#!/usr/bin/env python3
"""Makes tiny random checkpoints in Mistral's own format, and golden logits of the same weights from transformers in float32.

    make_mistral.py tests/data/checkpoints

Writes params.json, consolidated.safetensors and golden.json. tiny-mistral-own has the layers of Ministral 3, a tekken.json, and two shards
with an index. tiny-mistral-large3 has the layers of Mistral Large 3, in FP8 with a scale for each tensor, like Mistral Small 4. Needs
torch, transformers, safetensors and mistral-common.
"""
import base64
import collections
import json
import pathlib
import sys
import zlib

import torch
from safetensors.torch import save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    Mistral4Config,
    Mistral4ForCausalLM,
)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from arguments import arguments  # noqa: E402
from make_variants import PROMPT_LENGTHS, golden_case, randomize  # noqa: E402

SPECIAL = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
           "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]",
           "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]", "[CALL_ID]", "[ARGS]", "[THINK]", "[/THINK]", "[MODEL_SETTINGS]", "[/MODEL_SETTINGS]"]
NUM_SPECIAL = 30
VOCABULARY = 360
PATTERN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
           r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# The text on which the tokenizer is trained.
WORDS = ("the weather in the north is the same as the weather in the east when the wind is weak and the other waters are warm; "
         "there they gather, and then they are there another winter, either here or where the river is near {\"name\": \"the\", \"id\": 10} ")
YARN = {"factor": 4.0, "beta": 32.0, "alpha": 1.0, "original_max_position_embeddings": 24, "apply_scale": False}
SCALING = {"beta": 0.4, "original_max_position_embeddings": 24}


def tekken(version):
    """Makes a tekken.json; merges byte pairs by frequency."""
    tokens = [bytes([b]) for b in range(256)]
    words = [[bytes([b]) for b in word.encode()] for word in (" " + WORDS.replace(" ", "\0 ")).split("\0")]
    while len(tokens) < VOCABULARY - NUM_SPECIAL:
        pairs = collections.Counter(pair for word in words for pair in zip(word, word[1:]) if pair[0] + pair[1] not in tokens)
        if not pairs:
            raise ValueError("too little text")
        left, right = max(pairs, key=lambda pair: (pairs[pair], pair))
        tokens.append(left + right)
        for word in words:
            i = 0
            while i + 1 < len(word):
                if word[i] + word[i + 1] == left + right:
                    word[i:i + 2] = [left + right]
                i += 1
    return {
        "config": {"pattern": PATTERN, "num_vocab_tokens": len(tokens), "default_vocab_size": VOCABULARY,
                   "default_num_special_tokens": NUM_SPECIAL, "version": version},
        "vocab": [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None} for rank, token in enumerate(tokens)],
        "special_tokens": [{"rank": rank, "token_str": token, "is_control": True} for rank, token in enumerate(SPECIAL)],
    }


def in_lines(value):
    """JSON with a line for each element of the top-level lists."""
    members = []
    for key, member in value.items():
        text = "[\n%s\n]" % ",\n".join(map(json.dumps, member)) if isinstance(member, list) else json.dumps(member)
        members.append("%s: %s" % (json.dumps(key), text))
    return "{\n%s\n}\n" % ",\n".join(members)


def own_order(weight, heads):
    """The rows of q or k in Mistral's order, before the permutation of transformers: the two elements that RoPE rotates together are
    adjacent."""
    rows, cols = weight.shape
    return weight.view(heads, 2, rows // heads // 2, cols).transpose(1, 2).reshape(rows, cols).contiguous()


ATTENTION = {"q_proj": "wq", "k_proj": "wk", "v_proj": "wv", "o_proj": "wo", "q_a_proj": "wq_a", "q_a_layernorm": "q_a_norm",
             "q_b_proj": "wq_b", "kv_a_proj_with_mqa": "wkv_a_with_mqa", "kv_a_layernorm": "kv_a_norm", "kv_b_proj": "wkv_b"}
MLP = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}


def own_names(state, config):
    tensors = {"tok_embeddings.weight": state["model.embed_tokens.weight"], "norm.weight": state["model.norm.weight"],
               "output.weight": state["lm_head.weight"]}
    for name, value in state.items():
        parts = name.split(".")
        if parts[:2] != ["model", "layers"]:
            continue
        layer, parts = f"layers.{parts[2]}", parts[3:]
        if parts[0] == "input_layernorm":
            tensors[f"{layer}.attention_norm.weight"] = value
        elif parts[0] == "post_attention_layernorm":
            tensors[f"{layer}.ffn_norm.weight"] = value
        elif parts[0] == "self_attn":
            if parts[1] == "q_proj":
                value = own_order(value, config.num_attention_heads)
            elif parts[1] == "k_proj":
                value = own_order(value, config.num_key_value_heads)
            tensors[f"{layer}.attention.{ATTENTION[parts[1]]}.weight"] = value
        elif parts[1] == "gate":
            tensors[f"{layer}.gate.weight"] = value
        elif parts[1] == "shared_experts":
            tensors[f"{layer}.shared_experts.{MLP[parts[2]]}.weight"] = value
        elif parts[1] == "experts":
            for e, expert in enumerate(value):
                halves = expert.chunk(2) if parts[2] == "gate_up_proj" else (expert,)
                for matrix, half in zip(("w1", "w3") if len(halves) == 2 else ("w2",), halves):
                    tensors[f"{layer}.experts.{e}.{matrix}.weight"] = half
        else:
            tensors[f"{layer}.feed_forward.{MLP[parts[1]]}.weight"] = value
    return {name: value.contiguous().clone() for name, value in tensors.items()}


def is_linear(name):
    return name.startswith("model.layers.") and ("proj" in name)


def round_to_fp8(weight):
    scale = weight.abs().amax() / 448
    return (weight / scale).to(torch.float8_e4m3fn), scale


def finish(folder, model, config, generator, is_fp8):
    randomize(model, generator)
    state = {name: value.to(torch.bfloat16) for name, value in model.state_dict().items()}
    tensors = own_names(state, config)
    if is_fp8:
        # Round while each expert is a separate tensor, then put the values back into the model.
        scales = {}
        for name in [name for name in tensors if name.startswith("layers.") and "norm" not in name and ".gate." not in name]:
            tensors[name], scales[name] = round_to_fp8(tensors[name].float())
        values = {name: value.float() * scales.get(name, 1) for name, value in tensors.items()}
        for name, value in state.items():
            own = own_names({**state, name: torch.full_like(value, float("nan"))}, config)
            changed = [key for key, tensor in own.items() if torch.isnan(tensor.float()).any()]
            if ".experts.gate_up_proj" in name:
                count = len(changed) // 2
                layer = changed[0].split(".experts.")[0]
                state[name] = torch.stack([torch.cat([values[f"{layer}.experts.{e}.{w}.weight"] for w in ("w1", "w3")]) for e in range(count)])
            elif ".experts.down_proj" in name:
                layer = changed[0].split(".experts.")[0]
                state[name] = torch.stack([values[f"{layer}.experts.{e}.w2.weight"] for e in range(len(changed))])
            else:
                state[name] = values[changed[0]]
        for name, scale in scales.items():
            module = name.removesuffix(".weight")
            tensors[module + ".qscale_weight"] = scale.to(torch.float32).reshape(())
            tensors[module + ".qscale_act"] = torch.tensor(0.05)
    tensors["vision_encoder.ln_pre.weight"] = torch.ones(8, dtype=torch.bfloat16)
    model.load_state_dict({name: value.float() for name, value in state.items()})
    folder.mkdir(parents=True, exist_ok=True)
    if is_fp8:
        save_file(tensors, folder / "consolidated.safetensors", metadata={"format": "pt"})
    else:
        names = sorted(tensors)
        half = len(names) // 2
        index = {"metadata": {}, "weight_map": {}}
        for number, part in enumerate((names[:half], names[half:]), 1):
            file = f"consolidated-{number:05}-of-00002.safetensors"
            save_file({name: tensors[name] for name in part}, folder / file, metadata={"format": "pt"})
            index["weight_map"].update({name: file for name in part})
        (folder / "consolidated.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    prompts = [torch.randint(NUM_SPECIAL, config.vocab_size, (length,), generator=generator).tolist() for length in PROMPT_LENGTHS]
    cases = [golden_case(model, prompt) for prompt in prompts]
    (folder / "golden.json").write_text(json.dumps({"cases": cases}, separators=(",", ":")) + "\n")


def rope():
    return {"rope_type": "yarn", "rope_theta": 10000.0, "factor": YARN["factor"], "beta_fast": YARN["beta"], "beta_slow": YARN["alpha"],
            "original_max_position_embeddings": YARN["original_max_position_embeddings"], "attention_factor": 1.0,
            "llama_4_scaling_beta": SCALING["beta"]}


def make_dense(folder, generator):
    params = {"dim": 32, "n_layers": 2, "head_dim": 16, "hidden_dim": 48, "n_heads": 4, "n_kv_heads": 2, "norm_eps": 1e-5,
              "vocab_size": VOCABULARY, "rope_theta": 10000.0, "max_position_embeddings": 4096, "tied_embeddings": False,
              "yarn": YARN, "llama_4_scaling": SCALING, "model_type": "transformer",
              "vision_encoder": {"hidden_size": 8, "num_hidden_layers": 1}}
    config = AutoConfig.for_model("ministral3", vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, head_dim=16, intermediate_size=48,
                                  num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, max_position_embeddings=4096,
                                  tie_word_embeddings=False, rope_parameters=rope())
    config._attn_implementation = "eager"
    finish(folder, AutoModelForCausalLM.from_config(config).float().eval(), config, generator, is_fp8=False)
    (folder / "params.json").write_text(json.dumps(params, indent=2) + "\n")
    (folder / "tekken.json").write_text(in_lines(tekken("v13")))


def make_large3(folder, generator):
    moe = {"expert_hidden_dim": 16, "expert_model_parallel": 1, "expert_parallel": 1, "first_k_dense_replace": 1, "num_expert_groups": 1,
           "num_expert_groups_per_tok": 1, "num_experts": 6, "num_experts_per_tok": 2, "num_shared_experts": 1, "route_every_n": 1,
           "routed_scale": 1.0}
    params = {"dim": 32, "n_layers": 2, "head_dim": 16, "hidden_dim": 48, "n_heads": 4, "n_kv_heads": 4, "norm_eps": 1e-6, "vocab_size": 128,
              "rope_theta": 10000.0, "max_position_embeddings": 4096, "tied_embeddings": False, "q_lora_rank": 20, "kv_lora_rank": 18,
              "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 12, "moe": moe, "yarn": YARN, "llama_4_scaling": SCALING,
              "quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"}}
    config = Mistral4Config(vocab_size=128, hidden_size=32, num_hidden_layers=2, intermediate_size=48, moe_intermediate_size=16,
                            num_attention_heads=4, num_key_value_heads=4, q_lora_rank=20, kv_lora_rank=18, qk_nope_head_dim=8,
                            qk_rope_head_dim=8, v_head_dim=12, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1,
                            first_k_dense_replace=1, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.0,
                            rms_norm_eps=1e-6, max_position_embeddings=4096, tie_word_embeddings=False,
                            rope_parameters={**rope(), "partial_rotary_factor": 0.5})
    config._attn_implementation = "eager"
    finish(folder, Mistral4ForCausalLM(config).float().eval(), config, generator, is_fp8=True)
    (folder / "params.json").write_text(json.dumps(params, indent=2) + "\n")


def main():
    target = pathlib.Path(arguments(__doc__)[0])
    for name, make in (("tiny-mistral-own", make_dense), ("tiny-mistral-large3", make_large3)):
        make(target / name, torch.Generator().manual_seed(zlib.crc32(name.encode())))


if __name__ == "__main__":
    main()
