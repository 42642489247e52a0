"""Makes random checkpoints of a shape, each in its engine's format and with the engine's own tools. Runs in the Python of
the peer that needs it: checkpoints.py KIND SHAPE_FOLDER TARGET."""
import json
import os
import sys


def read_config(shape):
    with open(os.path.join(shape, "config.json"), encoding="utf-8") as file:
        return json.load(file)


# ---------------------------------------------------------------------------------- config.json alone: dummy weights

def int8_scheme():
    """W8A8: a scale per channel and one per token."""
    return {"quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed", "ignore": ["lm_head"],
            "config_groups": {"group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False},
                "input_activations": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}}}}


def int4_scheme():
    """W4A16: a scale per 128 weights."""
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed", "ignore": ["lm_head"],
            "config_groups": {"group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128,
                            "dynamic": False}}}}


def write_config(shape, target, scheme):
    config = read_config(shape)
    if scheme:
        config["quantization_config"] = scheme
    os.makedirs(target, exist_ok=True)
    with open(os.path.join(target, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)


# ---------------------------------------------------------------------------------------------- transformers, OpenVINO

def make_transformers(shape, target):
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    model = LlamaForCausalLM(LlamaConfig.from_pretrained(shape))
    model.save_pretrained(target)
    words = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1, "b": 2}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", eos_token="b", pad_token="b").save_pretrained(target)


def make_openvino(bits, source, target):
    from openvino import save_model
    from openvino_tokenizers import convert_tokenizer
    from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig
    from transformers import AutoTokenizer
    quantization = None
    if bits == 8:
        quantization = OVWeightQuantizationConfig(bits=8, sym=True)
    elif bits == 4:
        quantization = OVWeightQuantizationConfig(bits=4, sym=True, group_size=128, ratio=1.0)
    model = OVModelForCausalLM.from_pretrained(source, export=True, compile=False, load_in_8bit=False,
                                               quantization_config=quantization)
    model.save_pretrained(target)
    tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer.save_pretrained(target)
    encode, decode = convert_tokenizer(tokenizer, with_detokenizer=True)
    save_model(encode, os.path.join(target, "openvino_tokenizer.xml"))
    save_model(decode, os.path.join(target, "openvino_detokenizer.xml"))


# ------------------------------------------------------------------------------------------------------------ llama.cpp

def make_gguf(shape, target):
    import gguf
    import numpy
    config = read_config(shape)
    hidden, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    heads, kv_heads, width = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    writer = gguf.GGUFWriter(target, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    random = numpy.random.default_rng(0)

    def add(name, *shape_of):
        values = random.standard_normal(shape_of, dtype=numpy.float32) * numpy.float32(0.02)
        kind = gguf.GGMLQuantizationType.BF16
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    def add_norm(name):
        writer.add_tensor(name, numpy.ones(hidden, dtype=numpy.float32))

    add("token_embd.weight", config["vocab_size"], hidden)
    for layer in range(layers):
        block = "blk.%d." % layer
        add_norm(block + "attn_norm.weight")
        add(block + "attn_q.weight", heads * width, hidden)
        add(block + "attn_k.weight", kv_heads * width, hidden)
        add(block + "attn_v.weight", kv_heads * width, hidden)
        add(block + "attn_output.weight", hidden, heads * width)
        add_norm(block + "ffn_norm.weight")
        add(block + "ffn_gate.weight", inner, hidden)
        add(block + "ffn_up.weight", inner, hidden)
        add(block + "ffn_down.weight", hidden, inner)
    add_norm("output_norm.weight")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantize_gguf(bits, source, target):
    import llama_cpp as cpp
    options = cpp.llama_model_quantize_default_params()
    options.ftype = {8: cpp.LLAMA_FTYPE_MOSTLY_Q8_0, 4: cpp.LLAMA_FTYPE_MOSTLY_Q4_0}[bits]
    status = cpp.llama_model_quantize(source.encode(), target.encode(), options)
    assert status == 0, "llama_model_quantize: %d" % status


def main():
    kind, source, target = sys.argv[1:]
    makers = {"transformers": make_transformers, "gguf": make_gguf,
              "openvino-16": lambda *places: make_openvino(16, *places), "openvino-8": lambda *places: make_openvino(8, *places),
              "openvino-4": lambda *places: make_openvino(4, *places),
              "gguf-8": lambda *places: quantize_gguf(8, *places), "gguf-4": lambda *places: quantize_gguf(4, *places)}
    makers[kind](source, target)


if __name__ == "__main__":
    main()
