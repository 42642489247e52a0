#!/usr/bin/env python3
"""Writes FOLDER/pooling.json: embeddings of prompts from transformers in float32 and, for decoders, scores.

    v/bin/pip install torch transformers
    v/bin/python tools/checkpoints/make_pooling.py FOLDER...

`last`, `cls`, `mean`: hidden states after the last norm, pooled and not normalized. `no_yes`: the logits of the tokens 10 and 20
after the last token.
"""
import json
import pathlib
import random

import torch
from arguments import arguments
from transformers import AutoModel, AutoModelForCausalLM


def main():
    torch.set_num_threads(1)
    for folder in map(pathlib.Path, arguments(__doc__)):
        config = json.loads((folder / "config.json").read_text())
        is_decoder = config["architectures"][0].endswith("ForCausalLM")
        load = (AutoModelForCausalLM if is_decoder else AutoModel).from_pretrained
        model = load(folder, dtype=torch.float32, attn_implementation="eager").eval()
        body = model.model if is_decoder else model
        r = random.Random(3)
        cases = []
        for length in (1, 2, 7, 33, 150):
            length = min(length, config["max_position_embeddings"] - 4)
            ids = [r.randrange(config["vocab_size"]) for _ in range(length)]
            with torch.no_grad():
                hidden = body(torch.tensor([ids])).last_hidden_state[0]
                case = {"ids": ids, "last": hidden[-1], "cls": hidden[0], "mean": hidden.mean(0)}
                if is_decoder:
                    case["no_yes"] = model.lm_head(hidden[-1])[[10, 20]]
            cases.append({k: v if k == "ids" else [float("%.7g" % x) for x in v.tolist()] for k, v in case.items()})
        (folder / "pooling.json").write_text("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
