#!/usr/bin/env python3
"""Writes the default configurations of transformers' decoders, as transformers saves them.

    make_decoder_types.py tests/data/configs/decoder_types.json

Needs transformers. Covers the types of AutoModelForCausalLM except encoders with a head (also in AutoModelForMaskedLM), decoders of
encoder-decoder models, and assistants of another model. tools/decoder_types.py reports which of them can be loaded.
"""
import json
import pathlib

import transformers
from arguments import arguments
from transformers import CONFIG_MAPPING
from transformers.models.auto import modeling_auto

# Fields common to all models that do not affect the computation.
LEFT_OUT = {"_name_or_path", "transformers_version", "use_cache", "initializer_range", "attention_dropout", "id2label", "label2id",
            "return_dict", "output_hidden_states", "output_attentions", "chunk_size_feed_forward", "problem_type", "dtype", "architectures",
            "pretraining_tp", "output_router_logits", "router_aux_loss_coef"}
DECODERS_OF_ENCODERS = ("musicgen", "musicgen_melody", "trocr", "whisper", "moshi", "git", "blt", "prophetnet")
# The fields of published checkpoints: fields that the defaults leave out or set to unusable values.
PUBLISHED = {
    "arcee": {"vocab_size": 128004},
    "bamba": {"attn_layer_indices": [9, 18, 27]},
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6},
    "glm4_moe": {"head_dim": 128},
    "granitemoehybrid": {"num_hidden_layers": 40, "layer_types": (["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4},
    "llama4": {"architectures": ["Llama4ForConditionalGeneration"]},
    "minimax_m3_vl_text": {"layer_types": ["full_attention"] * 3 + ["minimax_m3_sparse"] * 57, "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 57,
                           "rope_parameters": {"rope_theta": 5000000.0, "rope_type": "default", "partial_rotary_factor": 0.5}},
    "qwen3_5": {"architectures": ["Qwen3_5ForConditionalGeneration"]},
    "qwen3_5_moe": {"architectures": ["Qwen3_5MoeForConditionalGeneration"]},
    "starcoder2": {"bos_token_id": 0, "eos_token_id": 0},
}


def trimmed(config):
    return {key: trimmed(value) if isinstance(value, dict) else value for key, value in config.items() if key not in LEFT_OUT}


def main():
    target = arguments(__doc__)[0]
    classes = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    encoders = modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    types = {}
    for name in sorted(classes):
        if name in encoders or name.endswith("_assistant") or name in DECODERS_OF_ENCODERS:
            continue
        config = CONFIG_MAPPING[name]()
        fields = trimmed(json.loads(config.to_json_string(use_diff=False)))
        if fields.pop("is_encoder_decoder", False):
            continue
        architecture = classes[name] if isinstance(classes[name], str) else classes[name][0]
        types[name] = {"architectures": [architecture], **fields, **PUBLISHED.get(name, {})}
    lines = ",\n".join(json.dumps(name) + ": " + json.dumps(value, separators=(",", ":")) for name, value in types.items())
    pathlib.Path(target).write_text('{"transformers": "%s", "types": {\n%s\n}}\n' % (transformers.__version__, lines))


if __name__ == "__main__":
    main()
