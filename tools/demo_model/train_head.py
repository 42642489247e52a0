#!/usr/bin/env python3
"""Trains the demo model's drafting head, an EAGLE-3 head, and writes it in the format of published heads.

    python train_head.py --model ../../models/abacus --out ../../models/abacus-eagle3

The head learns to predict the model's tokens: its labels are the model's most likely tokens after the generated text. The model
is not changed. Each step makes PASSES passes, as decoding does: the first pass reads the model's hidden rows, each further pass the head's
own rows of the previous pass. These rows attend to the first pass's keys up to their text, and to their own keys after it (training-time
test: the EAGLE-3 paper, section 3.2). Text and weights are seeded. Takes minutes on two cores.
"""
import argparse
import collections
import json
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from export import dump
from safetensors.torch import load_file, save_file
from train import make_rows, schedule

import tokenizer
from model import CONFIG, Llama, rotate

LAYERS = [1, 2, 3]  # the head reads the inputs of these layers
OUTPUTS = 512  # number of tokens that the head can propose
PASSES = 3
HEAD = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "vocab_size": CONFIG["vocab_size"],
    "draft_vocab_size": OUTPUTS,
    "hidden_size": CONFIG["hidden_size"],
    "intermediate_size": 256,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "hidden_act": "silu",
    "max_position_embeddings": CONFIG["max_position_embeddings"],
    "rms_norm_eps": CONFIG["rms_norm_eps"],
    "rope_theta": CONFIG["rope_theta"],
    "tie_word_embeddings": False,
    "bos_token_id": CONFIG["bos_token_id"],
    "eos_token_id": CONFIG["eos_token_id"],
    "eagle_aux_hidden_state_layer_ids": LAYERS,
    "torch_dtype": "bfloat16",
}
FOLLOWING = 0.8  # weight of a pass relative to the previous pass


class Head(torch.nn.Module):
    def __init__(self, embedding):
        super().__init__()
        size, wide, dim = HEAD["hidden_size"], HEAD["intermediate_size"], HEAD["head_dim"]
        self.heads, self.dim = HEAD["num_attention_heads"], dim
        self.embedding = [embedding]  # a list, because the embedding belongs to the model and is not trained
        shapes = {"fc": (size, len(LAYERS) * size), "q": (self.heads * dim, 2 * size), "k": (dim, 2 * size), "v": (dim, 2 * size),
                  "o": (size, self.heads * dim), "gate": (wide, size), "up": (wide, size), "down": (size, wide), "out": (OUTPUTS, size)}
        self.weights = torch.nn.ParameterDict({name: torch.nn.Parameter(torch.randn(shape) * shape[1] ** -0.5 * (0.3 if name in ("o", "down") else 1))
                                               for name, shape in shapes.items()})
        self.norms = torch.nn.ParameterDict({name: torch.nn.Parameter(torch.ones(size)) for name in ("token", "hidden", "mlp", "final")})
        self.inv_freq = HEAD["rope_theta"] ** (-torch.arange(0, dim, 2).float() / dim)

    def norm(self, name, x):
        return F.rms_norm(x, (x.shape[-1],), self.norms[name], HEAD["rms_norm_eps"])

    def forward(self, tokens, rows):
        """Logits of every pass. logits[s][:, i] predicts the token after tokens[:, i + s], drafted s + 1 tokens after the model's own.

        `tokens`: [texts, length]; token i follows the model's row i. `rows`: [texts, length, LAYERS * size].
        """
        texts, length, _ = rows.shape
        w = self.weights
        hidden = rows @ w["fc"].T
        all_logits, keys, values = [], [], []
        index = torch.arange(length)
        before = index[:, None] >= index
        for done in range(PASSES):
            # Row i of this pass is at position i + done, so the last rows would lie beyond the text.
            count = length - done
            angle = torch.outer(index[done:].float(), self.inv_freq).repeat(1, 2)
            x = torch.cat([self.norm("token", F.embedding(tokens[:, done:], self.embedding[0])), self.norm("hidden", hidden)], -1)
            q = rotate((x @ w["q"].T).view(texts, count, self.heads, self.dim), angle.cos()[:, None], angle.sin()[:, None])
            keys.append(rotate(x @ w["k"].T, angle.cos(), angle.sin()))
            values.append(x @ w["v"].T)
            scores = torch.einsum("tihd,tjd->thij", q, keys[0][:, :count]).masked_fill(~before[:count, :count], -1e30)
            own = [torch.einsum("tihd,tid->thi", q, k[:, :count])[..., None] for k in keys[1:]]
            share = (torch.cat([scores, *own], -1) * self.dim**-0.5).softmax(-1)
            y = torch.einsum("thij,tjd->tihd", share[..., :count], values[0][:, :count])
            for s, v in enumerate(values[1:]):
                y = y + share[..., count + s].transpose(1, 2)[..., None] * v[:, :count, None]
            x = hidden + y.reshape(texts, count, -1) @ w["o"].T
            y = self.norm("mlp", x)
            x = x + (F.silu(y @ w["gate"].T) * (y @ w["up"].T)) @ w["down"].T
            all_logits.append(self.norm("final", x) @ w["out"].T)
            hidden = x[:, :-1]
        return all_logits


class Teacher:
    def __init__(self, folder):
        self.model = Llama()
        self.model.load_state_dict({k: v.float() for k, v in load_file(os.path.join(folder, "model.safetensors")).items()})
        self.model.requires_grad_(False)
        self.inputs = {}
        for i in LAYERS:
            self.model.model.layers[i].register_forward_pre_hook(lambda _, args, i=i: self.inputs.__setitem__(i, args[0]))

    @torch.no_grad()
    def run(self, tokens):
        """The most likely next tokens, and the rows that the head reads."""
        best = self.model(tokens).argmax(-1)
        return best, torch.cat([self.inputs[i] for i in LAYERS], -1)


def batch_of(teacher, ids, marks, place):
    tokens = torch.from_numpy(ids[:, :-1].astype(np.int64))
    best, rows = teacher.run(tokens)
    # Trains only on tokens that follow the model's most likely token: greedy decoding continues no other
    # token.
    labels = place[best]
    answers = torch.from_numpy(marks[:, 1:]) >= 2
    return tokens[:, 1:], rows[:, :-1], labels[:, 1:], answers[:, 1:], best[:, :-1] == tokens[:, 1:]


def shares(logits, labels, counted, follows):
    """For each pass: (number of correct tokens, number of tokens). Counts only tokens whose preceding drafts were all correct."""
    alive, found = counted.clone(), []
    for s, each in enumerate(logits):
        count = each.shape[1]
        alive = alive[:, :count] & counted[:, s:]
        right = alive & (each.argmax(-1) == labels[:, s:])
        found.append((int(right.sum()), int(alive.sum())))
        # Later drafts count only if the text continues with this token.
        alive = right[:, :-1] & follows[:, s + 1:s + count]
    return found


def stored(head, ids):
    w, n, prefix = head.weights, head.norms, "midlayer."
    tensors = {"fc.weight": w["fc"], "lm_head.weight": w["out"], "norm.weight": n["final"],
               prefix + "input_layernorm.weight": n["token"], prefix + "hidden_norm.weight": n["hidden"], prefix + "post_attention_layernorm.weight": n["mlp"],
               **{f"{prefix}self_attn.{name}_proj.weight": w[name] for name in "qkvo"},
               **{f"{prefix}mlp.{name}_proj.weight": w[name] for name in ("gate", "up", "down")}}
    tensors = {name: value.detach().to(torch.bfloat16).contiguous() for name, value in tensors.items()}
    return {**tensors, "d2t": torch.tensor([token - i for i, token in enumerate(ids)], dtype=torch.int64)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True, help="folder of the model")
    p.add_argument("--out", required=True, help="folder of the finished head")
    p.add_argument("--steps", type=int, default=350)
    p.add_argument("--minutes", type=float, help="end by the clock, if that is before --steps")
    p.add_argument("--batch", type=int, default=8, help="rows of 256 tokens a step")
    p.add_argument("--rate", type=float, default=0.004)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()

    torch.manual_seed(args.seed)
    began = time.time()
    teacher = Teacher(args.model)
    ids, marks = make_rows(args.model, args.steps * args.batch, args.seed, 0.4)
    held_ids, held_marks = make_rows(args.model, 64, args.seed + 1, 0.4)  # other text; its numbers may be those of the training text
    often = collections.Counter(ids[:, 1:][marks[:, 1:] >= 2].tolist())
    chosen = sorted(token for token, _ in (often + collections.Counter(range(tokenizer.VOCAB))).most_common(OUTPUTS))
    place = torch.full((CONFIG["vocab_size"],), -1)
    place[chosen] = torch.arange(OUTPUTS)
    head = Head(teacher.model.model.embed_tokens.weight)
    parameters = list(head.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=args.rate, betas=(0.9, 0.98), weight_decay=0.0)
    print(f"{sum(p.numel() for p in parameters)} parameters, {time.time() - began:.0f} s to prepare", flush=True)
    began = time.time()
    held = batch_of(teacher, held_ids, held_marks, place)
    for step in range(args.steps):
        done = max(step / args.steps, (time.time() - began) / 60 / args.minutes if args.minutes else 0)
        if done >= 1:
            break
        part = slice(step * args.batch, (step + 1) * args.batch)
        tokens, rows, labels, answers, follows = batch_of(teacher, ids[part], marks[part], place)
        loss, alive = 0.0, answers
        for s, logits in enumerate(head(tokens, rows)):
            count = logits.shape[1]
            alive = alive[:, :count] & answers[:, s:] if s == 0 else alive[:, :-1] & answers[:, s:] & follows[:, s:s + count]
            each = F.cross_entropy(logits.flatten(0, 1), labels[:, s:].flatten(), reduction="none", ignore_index=-1)
            loss = loss + FOLLOWING**s * (each * alive.flatten()).sum() / alive.sum().clamp(min=1)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        for group in optimizer.param_groups:
            group["lr"] = args.rate * schedule(done, step, 30)
        optimizer.step()
        if (step + 1) % 50 == 0:
            with torch.no_grad():
                found = shares(head(held[0], held[1]), *held[2:])
            print(f"step {step + 1} loss {loss.item():.3f} {(time.time() - began) / (step + 1):.2f} s/step, right by place: "
                  + ", ".join(f"{right / max(1, of):.3f}" for right, of in found), flush=True)
    os.makedirs(args.out, exist_ok=True)
    save_file(stored(head, chosen), os.path.join(args.out, "model.safetensors"), metadata={"format": "pt"})
    dump(args.out, "config.json", HEAD)
    with open(os.path.join(args.out, "config.json")) as file:
        assert json.load(file) == HEAD


if __name__ == "__main__":
    main()
