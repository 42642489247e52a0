"""Writes a trained model in Hugging Face layout, rounded to bfloat16."""
import json
import os

import torch
from safetensors.torch import save_file

import problems
import tokenizer
from measure import CALCULATOR
from model import CONFIG


def dump(folder, name, value):
    with open(os.path.join(folder, name), "w") as f:
        json.dump(value, f, indent=2)
        f.write("\n")


def write(model, folder, tools):
    os.makedirs(folder, exist_ok=True)
    tensors = {k: v.detach().to(torch.bfloat16).contiguous() for k, v in model.state_dict().items()}
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    tokenizer.save_config(folder, tools)
    dump(folder, "config.json", CONFIG)
    if tools:
        dump(folder, "calculator.json", [CALCULATOR])
    dump(folder, "generation_config.json", {"bos_token_id": tokenizer.BOS, "eos_token_id": CONFIG["eos_token_id"]})
    with open(os.path.join(folder, "heldout.jsonl"), "w") as f:
        for row in problems.held_out_set(510):
            f.write(json.dumps(row) + "\n")
