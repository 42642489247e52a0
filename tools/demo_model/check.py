#!/usr/bin/env python3
"""Checks a finished model with transformers: its float32 logits and its token ids must equal those of model.py and tokenizer.py.
Prints the accuracy of the bfloat16 file on held-out problems, decoded greedily (weights in bfloat16, products in float32).

    python check.py --model ../../models/abacus --count 1200
"""
import argparse
import json
import os
import random

import forms
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, LlamaForCausalLM

import problems
import tokenizer
from measure import final
from model import Llama


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True)
    p.add_argument("--count", type=int, default=1200)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--say", nargs="*", default=[], help="raw prompts to complete")
    args = p.parse_args()
    torch.set_num_threads(args.threads)

    tok = AutoTokenizer.from_pretrained(args.model)
    theirs = LlamaForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    own = Llama()
    state = {k: v.float() for k, v in load_file(os.path.join(args.model, "model.safetensors")).items()}
    own.load_state_dict(state)

    ids = torch.randint(0, tokenizer.VOCAB, (2, 100), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        apart = (own(ids) - theirs(ids).logits).abs().max().item()
    print(f"largest difference of logits from transformers: {apart:.2e}")
    assert apart < 1e-3

    r = random.Random(5)
    for _ in range(200):
        form, parts = problems.document(r)
        if form == "chat":
            messages = [{"role": a, "content": b} for a, b in parts]
            want = tok(tok.apply_chat_template(messages, tokenize=False), add_special_tokens=False).input_ids
            assert tokenizer.encode(tok.backend_tokenizer, (form, parts))[0] == want
        else:
            want = tok("".join(b for _, b in parts)).input_ids
            assert tokenizer.encode(tok.backend_tokenizer, (form, parts))[0] == want + [tokenizer.END]
        if "tools" not in tok.chat_template:
            continue
        tools, messages = forms.request(r)
        trained = tokenizer.encode(tok.backend_tokenizer, ("chat", forms.parts(tools, messages)))[0]
        for call in (c["function"] for m in messages for c in m.get("tool_calls", ())):
            call["arguments"] = json.loads(call["arguments"])  # templates expect objects
        assert trained == tok(tok.apply_chat_template(messages, tools=tools, tokenize=False), add_special_tokens=False).input_ids
    print("the chat template and the training text have the same token ids")

    tok.padding_side = "left"
    for prompt in args.say:
        x = tok(prompt, return_tensors="pt")
        x.pop("token_type_ids", None)
        print(repr(tok.decode(theirs.generate(**x, max_new_tokens=60, do_sample=False)[0][1:])))

    rows = problems.held_out_set(args.count, seed=2024)
    prompts = [tok.apply_chat_template([{"role": "user", "content": x["question"]}], tokenize=False, add_generation_prompt=True)
               for x in rows]
    order = sorted(range(len(rows)), key=lambda n: len(prompts[n]))
    kinds, right = {}, 0
    for start in range(0, len(order), 100):
        part = order[start:start + 100]
        x = tok([prompts[n] for n in part], return_tensors="pt", padding=True, add_special_tokens=False)
        x.pop("token_type_ids", None)
        out = theirs.generate(**x, max_new_tokens=160, do_sample=False)
        for n, text in zip(part, tok.batch_decode(out[:, x["input_ids"].shape[1]:], skip_special_tokens=True)):
            ok = final(text) == final(rows[n]["answer"])
            count = kinds.setdefault(rows[n]["kind"], [0, 0])
            count[0] += ok
            count[1] += 1
            right += ok
            if not ok:
                print("wrong:", json.dumps([rows[n]["question"], rows[n]["answer"], text]))
    for kind in problems.KINDS:
        good, all_ = kinds.get(kind, (0, 0))
        print(f"| {kind} | {good} of {all_} | {100 * good / max(1, all_):.1f} % |")
    print(f"{right} of {len(rows)} right ({100 * right / len(rows):.1f} %)")


if __name__ == "__main__":
    main()
