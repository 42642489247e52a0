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

class Gguf:
    """Writes random BF16 matrices and float32 vectors under llama.cpp's names."""

    def __init__(self, target, architecture, config):
        import gguf
        import numpy
        self.gguf, self.numpy, self.config = gguf, numpy, config
        self.random = numpy.random.default_rng(0)
        self.writer = writer = gguf.GGUFWriter(target, architecture)
        hidden, self.heads, self.kv_heads = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
        self.width = config.get("head_dim") or hidden // self.heads
        rope = config.get("rope_parameters") or {}
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_embedding_length(hidden)
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_head_count(self.heads)
        writer.add_key_length(self.width)
        writer.add_value_length(self.width)
        writer.add_rope_dimension_count(int(self.width * rope.get("partial_rotary_factor", 1)))
        writer.add_rope_freq_base(rope.get("rope_theta") or config["rope_theta"])
        writer.add_layer_norm_rms_eps(config.get("rms_norm_eps") or config["norm_eps"])
        writer.add_vocab_size(config["vocab_size"])
        writer.add_tokenizer_model("no_vocab")

    def matrix(self, name, *shape_of):
        values = self.random.standard_normal(shape_of, dtype=self.numpy.float32) * self.numpy.float32(0.02)
        kind = self.gguf.GGMLQuantizationType.BF16
        self.writer.add_tensor(name + ".weight", self.gguf.quants.quantize(values, kind), raw_dtype=kind)

    def vector(self, name, *shape_of, value=1.0):
        self.writer.add_tensor(name, self.numpy.full(shape_of, value, dtype=self.numpy.float32))

    def attention(self, block, query_widths=1, norms=False):
        """Projections of one attention layer; with a gate beside each query, query_widths is 2."""
        hidden = self.config["hidden_size"]
        self.matrix(block + "attn_q", query_widths * self.heads * self.width, hidden)
        self.matrix(block + "attn_k", self.kv_heads * self.width, hidden)
        self.matrix(block + "attn_v", self.kv_heads * self.width, hidden)
        self.matrix(block + "attn_output", hidden, self.heads * self.width)
        if norms:
            self.vector(block + "attn_q_norm.weight", self.width)
            self.vector(block + "attn_k_norm.weight", self.width)

    def mlp(self, block):
        hidden, inner = self.config["hidden_size"], self.config["intermediate_size"]
        self.matrix(block + "ffn_gate", inner, hidden)
        self.matrix(block + "ffn_up", inner, hidden)
        self.matrix(block + "ffn_down", hidden, inner)

    def close(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def make_gguf(shape, target):
    config = read_config(shape)
    {"llama": make_llama, "lfm2": make_lfm2, "qwen3_5_text": make_qwen35}[config["model_type"]](config, target)


def make_llama(config, target):
    file = Gguf(target, "llama", config)
    file.writer.add_head_count_kv(file.kv_heads)
    file.matrix("token_embd", config["vocab_size"], config["hidden_size"])
    for layer in range(config["num_hidden_layers"]):
        block = "blk.%d." % layer
        file.vector(block + "attn_norm.weight", config["hidden_size"])
        file.attention(block)
        file.vector(block + "ffn_norm.weight", config["hidden_size"])
        file.mlp(block)
    file.vector("output_norm.weight", config["hidden_size"])
    file.close()


def make_lfm2(config, target):
    """Short convolutions; llama.cpp knows these layers by their 0 heads of keys."""
    file = Gguf(target, "lfm2", config)
    hidden, kinds = config["hidden_size"], config["layer_types"]
    file.writer.add_head_count_kv([file.kv_heads if kind == "full_attention" else 0 for kind in kinds])
    file.writer.add_uint32("lfm2.shortconv.l_cache", config["conv_L_cache"])
    file.matrix("token_embd", config["vocab_size"], hidden)
    for layer, kind in enumerate(kinds):
        block = "blk.%d." % layer
        file.vector(block + "attn_norm.weight", hidden)
        if kind == "full_attention":
            file.attention(block, norms=True)
        else:
            file.vector(block + "shortconv.conv.weight", hidden, config["conv_L_cache"], value=0.3)
            file.matrix(block + "shortconv.in_proj", 3 * hidden, hidden)
            file.matrix(block + "shortconv.out_proj", hidden, hidden)
        file.vector(block + "ffn_norm.weight", hidden)
        file.mlp(block)
    file.vector("token_embd_norm.weight", hidden)  # llama.cpp's name of the last norm of this model
    file.close()


def make_qwen35(config, target):
    """Gated DeltaNet in three of four layers, gated attention in the others."""
    file = Gguf(target, "qwen35", config)
    writer, hidden, kinds = file.writer, config["hidden_size"], config["layer_types"]
    width, key_heads, value_heads = config["linear_key_head_dim"], config["linear_num_key_heads"], config["linear_num_value_heads"]
    values, convolved = value_heads * width, (2 * key_heads + value_heads) * width
    writer.add_head_count_kv(file.kv_heads)
    writer.add_rope_dimension_sections(config["rope_parameters"]["mrope_section"] + [0])
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_inner_size(values)
    writer.add_ssm_state_size(width)
    writer.add_ssm_time_step_rank(value_heads)
    writer.add_ssm_group_count(key_heads)
    writer.add_uint32("qwen35.full_attention_interval", kinds.index("full_attention") + 1)
    file.matrix("token_embd", config["vocab_size"], hidden)
    for layer, kind in enumerate(kinds):
        block = "blk.%d." % layer
        file.vector(block + "attn_norm.weight", hidden)
        if kind == "full_attention":
            file.attention(block, query_widths=2, norms=True)
        else:
            file.matrix(block + "attn_qkv", convolved, hidden)
            file.matrix(block + "attn_gate", values, hidden)
            file.vector(block + "ssm_conv1d.weight", convolved, config["linear_conv_kernel_dim"], value=0.3)
            file.vector(block + "ssm_dt.bias", value_heads, value=0.1)
            file.vector(block + "ssm_a", value_heads, value=-1.0)
            file.matrix(block + "ssm_beta", value_heads, hidden)
            file.matrix(block + "ssm_alpha", value_heads, hidden)
            file.vector(block + "ssm_norm.weight", width)
            file.matrix(block + "ssm_out", hidden, values)
        file.vector(block + "post_attention_norm.weight", hidden)
        file.mlp(block)
    file.vector("output_norm.weight", hidden)
    file.close()


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
