"""Writes files of random weights in the format of published checkpoints: their names, shapes and types, with valid but meaningless numbers."""
import json
import os
import struct
import typing

BLOCK = 1 << 22
SIZES = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1, "I32": 4, "I64": 8}


class Numbers(typing.NamedTuple):
    """How to fill a tensor with repeated bytes: random bits where the mask is set, added to the base."""
    dtype: str
    mask: bytes
    base: bytes

    def block(self):
        count = BLOCK // len(self.mask)
        drawn = int.from_bytes(os.urandom(BLOCK), "little") & int.from_bytes(self.mask * count, "little")
        return (drawn | int.from_bytes(self.base * count, "little")).to_bytes(BLOCK, "little")


BF16 = Numbers("BF16", b"\x7f\x80", b"\x00\x3c")  # both signs, magnitude from 2^-7 to 2^-6
BF16_SCALE = Numbers("BF16", b"\x7f\x00", b"\x00\x3c")
F32_SCALE = Numbers("F32", bytes(4), struct.pack("<f", 2**-6))
E4M3 = Numbers("F8_E4M3", b"\xbf", b"\x00")  # both signs, magnitude below 2: never NaN
E4M3_SCALE = Numbers("F8_E4M3", b"\x07", b"\x38")  # from 1 to 2
E8M0_SCALE = Numbers("U8", b"\x07", b"\x78")  # from 2^-7 to 1
CODES = Numbers("U8", b"\xff", b"\x00")
WORDS = Numbers("I32", b"\xff", b"\x00")

# By format: the tensors of a linear layer with these rows and columns.
FORMATS = {
    "bf16": lambda rows, columns: {"weight": (BF16, [rows, columns])},
    "fp8": lambda rows, columns: {"weight": (E4M3, [rows, columns]), "weight_scale": (F32_SCALE, []), "input_scale": (F32_SCALE, [])},
    "nvfp4": lambda rows, columns: {"weight": (CODES, [rows, columns // 2]), "weight_scale": (E4M3_SCALE, [rows, columns // 16]),
                                    "weight_scale_2": (F32_SCALE, []), "input_scale": (F32_SCALE, [])},
    "mxfp4": lambda rows, columns: {"weight_packed": (CODES, [rows, columns // 2]), "weight_scale": (E8M0_SCALE, [rows, columns // 32])},
    "int4": lambda rows, columns: {"weight_packed": (WORDS, [rows, columns // 8]), "weight_scale": (BF16_SCALE, [rows, columns // 128]),
                                   "weight_shape": (Numbers("I64", bytes(16), struct.pack("<qq", rows, columns)), [2])},
}


def linear_shapes(config):
    """By name: rows and columns of the linear layers in a Llama layer."""
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    head = config.get("head_dim") or hidden // config["num_attention_heads"]
    q, kv = head * config["num_attention_heads"], head * config["num_key_value_heads"]
    return {"self_attn.q_proj": (q, hidden), "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, q),
            "mlp.gate_proj": (wide, hidden), "mlp.up_proj": (wide, hidden), "mlp.down_proj": (hidden, wide)}


def write_safetensors(path, tensors):
    """Writes a file. `tensors`: Numbers and a shape, by name."""
    head, end = {}, 0
    for name, (numbers, shape) in tensors.items():
        size = SIZES[numbers.dtype]
        for length in shape:
            size *= length
        head[name] = {"dtype": numbers.dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    blocks = {}
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, (numbers, _) in tensors.items():
            if numbers not in blocks:
                blocks[numbers] = numbers.block()
            begin, end = head[name]["data_offsets"]
            for at in range(begin, end, BLOCK):
                file.write(memoryview(blocks[numbers])[:min(BLOCK, end - at)])


def write_checkpoint(folder, config, form):
    """Writes a checkpoint of a Llama with that config.json, its linear layers in a format of FORMATS."""
    vocabulary, hidden = config["vocab_size"], config["hidden_size"]
    tensors = {"model.embed_tokens.weight": (BF16, [vocabulary, hidden]), "model.norm.weight": (BF16, [hidden])}
    if not config.get("tie_word_embeddings"):
        tensors["lm_head.weight"] = (BF16, [vocabulary, hidden])
    for layer in range(config["num_hidden_layers"]):
        prefix = "model.layers.%d." % layer
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[prefix + norm + ".weight"] = (BF16, [hidden])
        for module, (rows, columns) in linear_shapes(config).items():
            for part, tensor in FORMATS[form](rows, columns).items():
                tensors["%s%s.%s" % (prefix, module, part)] = tensor
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", tensors)
