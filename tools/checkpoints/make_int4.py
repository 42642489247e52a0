#!/usr/bin/env python3
"""Makes tiny INT4 checkpoints in the formats of published tools, with golden logits from transformers in float32.

    make_int4.py tests/data/checkpoints [name ...]

Needs torch, transformers, datasets, llmcompressor and compressed-tensors. Names with "gptq" also need gptqmodel, and names with "awq"
autoawq: the tool's own code packs the weights and, for the golden logits, unpacks them. A checkpoint's name is its seed. Calibrated
checkpoints may differ between versions of a tool.
"""
import json
import pathlib
import shutil
import sys
import tempfile
import zlib

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from arguments import arguments  # noqa: E402
from make_variants import COMMON, PROMPT_LENGTHS, golden_case, randomize  # noqa: E402

DENSE = {**COMMON, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 128, "intermediate_size": 192,
         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "attention_bias": False,
         "rope_theta": 1000000.0, "tie_word_embeddings": True}
EXPERTS = {**COMMON, "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 64, "intermediate_size": 64,
           "moe_intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
           "num_experts": 4, "num_experts_per_tok": 2, "decoder_sparse_step": 1, "norm_topk_prob": True, "attention_bias": False,
           "rope_theta": 1000000.0, "tie_word_embeddings": True}
PACKED = {"num_bits": 4, "type": "int"}

VARIANTS = {
    "tiny-qwen3-w4a16": (DENSE, "llmcompressor", {**PACKED, "strategy": "group", "group_size": 32, "symmetric": True}),
    "tiny-qwen3-w4a16-gptq": (DENSE, "llmcompressor", {**PACKED, "strategy": "group", "group_size": 64, "symmetric": False,
                                                       "actorder": "weight"}),
    "tiny-qwen3-w4a16-actorder": (DENSE, "compressed-tensors", {**PACKED, "strategy": "group", "group_size": 64, "symmetric": False,
                                                                "actorder": "group"}),
    "tiny-qwen3-moe-w4a16": (EXPERTS, "compressed-tensors", {**PACKED, "strategy": "channel", "symmetric": False}),
    "tiny-qwen3-gptq": (DENSE, "gptq", {"bits": 4, "group_size": 64, "desc_act": True, "sym": False, "checkpoint_format": "gptq"}),
    "tiny-qwen3-moe-gptq": (EXPERTS, "gptq", {"bits": 4, "group_size": 32, "desc_act": False, "sym": True,
                                              "checkpoint_format": "gptq_v2"}),
    "tiny-qwen3-awq": (DENSE, "awq", {"bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"}),
}


def source_model(settings, generator):
    keys = {key: value for key, value in settings.items() if key not in ("model_type", "architectures")}
    config = AutoConfig.for_model(settings["model_type"], **keys)
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).float().eval()
    randomize(model, generator)
    return model


def linears(state):
    """The weights that the tools quantize: linear weights of the layers, except routers. Splits experts into one matrix each."""
    for name, weight in list(state.items()):
        if name.endswith("experts.gate_up_proj") or name.endswith("experts.down_proj"):
            prefix = name.rsplit(".", 1)[0]
            del state[name]
            for expert, matrix in enumerate(weight):
                if name.endswith("down_proj"):
                    state["%s.%d.down_proj.weight" % (prefix, expert)] = matrix.contiguous()
                else:
                    gate, up = matrix.chunk(2)
                    state["%s.%d.gate_proj.weight" % (prefix, expert)] = gate.contiguous()
                    state["%s.%d.up_proj.weight" % (prefix, expert)] = up.contiguous()
    return [name for name, weight in state.items() if name.startswith("model.layers.") and weight.dim() == 2
            and not name.endswith("mlp.gate.weight")]


def fused(state, settings):
    """Joins the experts into one tensor, as transformers stores them."""
    if "num_experts" not in settings:
        return state
    state = dict(state)
    experts = range(settings["num_experts"])
    for layer in range(settings["num_hidden_layers"]):
        prefix = "model.layers.%d.mlp.experts." % layer
        gate, up, down = ([state.pop("%s%d.%s_proj.weight" % (prefix, expert, name)) for expert in experts] for name in ("gate", "up", "down"))
        state[prefix + "gate_up_proj"] = torch.stack([torch.cat(pair) for pair in zip(gate, up)])
        state[prefix + "down_proj"] = torch.stack(down)
    return state


def parameters(weight, group_size, symmetric):
    """Scales and zero points for round-to-nearest: [out, groups]."""
    out, inputs = weight.shape
    groups = weight.float().reshape(out, -1, inputs if group_size == -1 else group_size)
    if symmetric:
        scales = groups.abs().amax(2) / 7.5
        return scales, torch.full_like(scales, 8)
    low, high = groups.amin(2).clamp(max=0), groups.amax(2).clamp(min=0)
    scales = (high - low) / 15
    return scales, (-low / scales).round().clamp(0, 15)


def by_llmcompressor(model, settings, args, folder, generator):
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier
    groups = {"group_0": {"targets": ["Linear"], "weights": args}}
    options = {}
    recipe = QuantizationModifier(config_groups=groups, ignore=["lm_head"])
    if args.get("actorder"):
        rows = torch.randint(3, settings["vocab_size"], (16, 64), generator=generator).tolist()
        options = {"dataset": Dataset.from_dict({"input_ids": rows, "attention_mask": [[1] * 64] * 16}),
                   "num_calibration_samples": 16, "max_seq_length": 64}
        recipe = GPTQModifier(config_groups=groups, ignore=["lm_head"])
    with tempfile.TemporaryDirectory() as scratch:
        # Load from a folder: the tool reads the configuration there.
        model.save_pretrained(scratch)
        model = AutoModelForCausalLM.from_pretrained(scratch, dtype=torch.bfloat16)
        oneshot(model=model, recipe=recipe, **options)
        out = pathlib.Path(scratch) / "out"
        model.save_pretrained(out, save_compressed=True)
        state = load_file(out / "model.safetensors")
        config = json.loads((out / "config.json").read_text())
    return state, config["quantization_config"]


def order_of(inputs, is_other):
    """The order in which input columns are grouped; the same for layers with the same input."""
    return torch.randperm(inputs, generator=torch.Generator().manual_seed(inputs)) if is_other else torch.arange(inputs)


def by_compressed_tensors(model, settings, args, folder, generator):
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
    state = model.state_dict()
    for name in linears(state):
        weight = state.pop(name)
        inputs = weight.shape[1]
        size = args.get("group_size", -1)
        order = order_of(inputs, args.get("actorder") == "group")
        scales, zeros = parameters(weight[:, order], size, args["symmetric"])
        scales = scales.to(torch.bfloat16)
        index = torch.empty(inputs, dtype=torch.int32)
        index[order] = torch.arange(inputs, dtype=torch.int32) // (inputs if size == -1 else size)
        codes = ((weight.float() / scales.float()[:, index]).round() + zeros[:, index]).clamp(0, 15) - 8
        module = name[:-len(".weight")]
        state[module + ".weight_packed"] = pack_to_int32(codes.to(torch.int8), 4)
        state[module + ".weight_scale"] = scales
        state[module + ".weight_shape"] = torch.tensor(weight.shape)
        state[module + ".weight_zero_point"] = pack_to_int32((zeros - 8).to(torch.int8), 4, packed_dim=0).contiguous()
        if args.get("actorder") == "group":
            state[module + ".weight_g_idx"] = index
    block = {"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
             "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"dynamic": False, "actorder": None, **args}}},
             "ignore": ["lm_head", "re:.*mlp.gate$"], "kv_cache_scheme": None}
    return state, block


def unpack_compressed_tensors(state, args):
    from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
    plain = dict(state)
    for name in [name for name in state if name.endswith(".weight_packed")]:
        module = name[:-len(".weight_packed")]
        shape = torch.Size(plain.pop(module + ".weight_shape").tolist())
        codes = unpack_from_int32(plain.pop(name), 4, shape).float()
        scales = plain.pop(module + ".weight_scale").float()
        zeros = plain.pop(module + ".weight_zero_point", None)
        zeros = torch.zeros_like(scales) if zeros is None else unpack_from_int32(zeros, 4, scales.shape, packed_dim=0).float()
        inputs = torch.arange(shape[1])
        index = plain.pop(module + ".weight_g_idx", inputs // (shape[1] // scales.shape[1])).long()
        plain[module + ".weight"] = (codes - zeros[:, index]) * scales[:, index]
    return plain


def by_gptq(model, settings, args, folder, generator):
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    state, unpacked = model.state_dict(), {}
    for name in linears(state):
        weight = state.pop(name).float()
        out, inputs = weight.shape
        size = args["group_size"]
        order = order_of(inputs, args["desc_act"])
        scales, zeros = parameters(weight[:, order], size, args["sym"])
        scales = scales.half().float()
        index = torch.empty(inputs, dtype=torch.int32)
        index[order] = torch.arange(inputs, dtype=torch.int32) // size
        codes = (weight / scales[:, index] + zeros[:, index]).round().clamp(0, 15)
        linear = torch.nn.Linear(inputs, out, bias=False)
        linear.weight.data = (codes - zeros[:, index]) * scales[:, index]
        layer = TorchLinear(bits=4, group_size=size, sym=args["sym"], desc_act=args["desc_act"], in_features=inputs,
                                 out_features=out, bias=False, pack_dtype=torch.int32, register_buffers=True)
        layer.pack_original(linear, scales, zeros, g_idx=index)
        # The tool unpacks to float16; these are the same values before that rounding.
        assert torch.allclose(layer.dequantize_weight().T.float(), linear.weight.data, rtol=2**-10, atol=1e-7)
        unpacked[name] = linear.weight.data
        if args["checkpoint_format"] == "gptq":
            layer.qzeros -= 0x11111111
        module = name[:-len(".weight")]
        for part in ("qweight", "qzeros", "scales", "g_idx"):
            state["%s.%s" % (module, part)] = getattr(layer, part).contiguous()
    return state, {"quant_method": "gptq", **args}, unpacked


def by_awq(model, settings, args, folder, generator):
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.utils.packing_utils import dequantize_gemm
    state, unpacked = model.state_dict(), {}
    for name in linears(state):
        weight = state.pop(name).float()
        out, inputs = weight.shape
        size = args["group_size"]
        scales, zeros = parameters(weight, size, False)
        scales = scales.half().float()
        index = torch.arange(inputs) // size
        codes = (weight / scales[:, index] + zeros[:, index]).round().clamp(0, 15)
        linear = torch.nn.Linear(inputs, out, bias=False)
        linear.weight.data = (codes - zeros[:, index]) * scales[:, index]
        layer = WQLinear_GEMM.from_linear(linear, 4, size, scales=scales.T.contiguous(), zeros=zeros.T.contiguous())
        unpacked[name] = dequantize_gemm(layer.qweight, layer.qzeros, layer.scales.float(), 4, size).T
        module = name[:-len(".weight")]
        for part in ("qweight", "qzeros", "scales"):
            state["%s.%s" % (module, part)] = getattr(layer, part).contiguous()
    return state, {"quant_method": "awq", "modules_to_not_convert": None, **args}, unpacked


TOOLS = {"llmcompressor": by_llmcompressor, "compressed-tensors": by_compressed_tensors, "gptq": by_gptq, "awq": by_awq}


def make(name, folder):
    settings, tool, args = VARIANTS[name]
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    model = source_model(settings, generator).to(torch.bfloat16)
    prompts = [torch.randint(3, settings["vocab_size"], (length,), generator=generator).tolist() for length in PROMPT_LENGTHS]
    original = {key: value.clone() for key, value in model.state_dict().items()}
    linears(original)
    state, block, *unpacked = TOOLS[tool](model, settings, args, folder, generator)
    state.pop("lm_head.weight", None)
    plain = {**state, **unpacked[0]} if unpacked else unpack_compressed_tensors(state, args)
    plain = {key: value.float() for key, value in plain.items() if key in original}
    for key in linears(dict(plain)):
        error = (plain[key] - original[key].float()).norm() / original[key].float().norm()
        assert error < 0.2, (key, error)
    oracle = source_model(settings, torch.Generator().manual_seed(0))
    missing = oracle.load_state_dict(fused(plain, settings), strict=False)
    assert not missing.unexpected_keys and set(missing.missing_keys) <= {"lm_head.weight"}, missing
    oracle.tie_weights()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    save_file({key: value.contiguous() for key, value in state.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    written = {**settings, "torch_dtype": "bfloat16", "quantization_config": block}
    (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    cases = [golden_case(oracle, prompt) for prompt in prompts]
    (folder / "golden.json").write_text(json.dumps({"cases": cases}, separators=(",", ":")) + "\n")


def main():
    folder, *names = arguments(__doc__)
    target = pathlib.Path(folder)
    for name in names or VARIANTS:
        make(name, target / name)


if __name__ == "__main__":
    main()
