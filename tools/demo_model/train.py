#!/usr/bin/env python3
"""Trains the demo model and writes it in Hugging Face layout, in one command.

    python train.py --out ../../models/abacus

Text and weights are seeded. --work sets the folder of the checkpoints; --export-only
exports the newest checkpoint without training.
"""
import argparse
import multiprocessing
import os
import random
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import export
import forms
import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer

import problems
import tokenizer
from model import Llama

ROW = 256                         # tokens in a row of a batch
# Loss weights by mark: headers and padding, questions, answers, a call's arguments, answers in JSON.
WEIGHTS = [0.0, 0.1, 1.0, 4.0, 2.0]


def rows_of(args):
    """Packs whole documents into `count` rows. Tokens also attend to earlier documents of their row, as in a long chat."""
    folder, count, seed, share = args
    tok = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    r = random.Random(seed)
    ids = np.full((count, ROW + 1), tokenizer.END, np.uint16)
    marks = np.zeros((count, ROW + 1), np.uint8)
    open_rows, done, used = [], 0, np.zeros(count, int)
    started = 0
    while done < count:
        i, m = tokenizer.encode(tok, forms.document(r, share))
        if len(i) > ROW:
            continue
        fits = [k for k in open_rows if used[k] + len(i) <= ROW + 1]
        if fits:
            k = max(fits, key=lambda k: used[k])
        elif started < count:
            k, started = started, started + 1
            open_rows.append(k)
        else:
            open_rows.pop()  # no documents are left: close the rows one by one
            done += 1
            continue
        ids[k, used[k]:used[k] + len(i)] = i
        marks[k, used[k]:used[k] + len(i)] = m
        used[k] += len(i)
        if len(open_rows) > 24 or used[k] > ROW - 24:
            full = max(open_rows, key=lambda k: used[k])
            open_rows.remove(full)
            done += 1
    return ids, marks


def make_rows(folder, count, seed, share):
    per = 2048
    jobs = [(folder, min(per, count - n), seed * 100003 + n, share) for n in range(0, count, per)]
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        parts = pool.map(rows_of, jobs, chunksize=1)
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def held_out_batches(tok, count):
    """Held-out chats of each form, padded. Marks the tokens that count: digits of answers, arguments of calls."""
    digits = {tok.token_to_id(str(d)) for d in range(10)}
    docs = {"answers": [[("user", x["question"]), ("assistant", x["answer"])] for x in problems.held_out_set(count, seed=11)],
            "calls": [forms.parts(*x) for x in forms.held_out(forms.with_tool, count // 2, seed=12)],
            "schemas": [forms.parts(*x) for x in forms.held_out(forms.in_schema, count // 2, seed=13)]}
    batches = {}
    for form, chats in docs.items():
        encoded = [tokenizer.encode(tok, ("chat", chat)) for chat in chats]
        width = max(len(i) for i, _ in encoded)
        ids = torch.full((len(encoded), width), tokenizer.END)
        marks = torch.zeros((len(encoded), width), dtype=torch.bool)
        for n, (i, m) in enumerate(encoded):
            ids[n, :len(i)] = torch.tensor(i)
            marks[n, :len(i)] = torch.tensor([b == 3 if form == "calls" else b in (2, 4) and a in digits for a, b in zip(i, m)])
        batches[form] = ids, marks
    return batches


@torch.no_grad()
def answers_right(model, batch):
    """Fraction of answers in which every digit is the model's most likely token, given the text before it."""
    ids, marks = batch
    right = 0
    for i, m in zip(ids.split(100), marks.split(100)):
        best = model(i[:, :-1]).argmax(-1)
        right += int(((best == i[:, 1:]) | ~m[:, 1:]).all(1).sum())
    return right / len(ids)


def orthogonal(x, dtype, rounds=5):
    """The nearest matrices with equal singular values, by Newton-Schulz steps. Requires rows <= columns."""
    x = x.to(dtype)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(rounds):
        y = x @ x.mT
        y = torch.baddbmm(y, y, y, beta=-4.7750, alpha=2.0315)
        x = torch.baddbmm(x, y, x, beta=3.4445)
    return x.float()


class Muon:
    """Orthogonalized momentum for matrices; needs far fewer steps than AdamW."""

    def __init__(self, params, dtype):
        self.dtype = dtype                    # type of the matrix products
        self.groups = {}  # matrices of the same shape are processed together
        for p in params:
            key = (tuple(sorted(p.shape)), p.shape[0] > p.shape[1])
            self.groups.setdefault(key, []).append((p, torch.zeros_like(p)))

    @torch.no_grad()
    def step(self, rate):
        for (_, tall), group in self.groups.items():
            for p, m in group:
                m.lerp_(p.grad, 0.05)
            x = torch.stack([p.grad.lerp(m, 0.95) for p, m in group])
            x = orthogonal(x.mT.contiguous(), self.dtype).mT if tall else orthogonal(x, self.dtype)
            for (p, _), update in zip(group, x):
                p.mul_(1 - rate * 0.01)
                p.add_(update, alpha=-rate * max(1.0, p.shape[0] / p.shape[1]) ** 0.5)


def schedule(done, step, warm_up=100):
    """Learning rate: rises for `warm_up` steps, constant until 45 % are done, then linear to zero."""
    return min((step + 1) / warm_up, 1.0, max(0.0, 1 - done) / 0.55)


def worker(rank, args, master, grads, barrier, done, ids, marks, checkpoint):
    """Each process computes its share of the batch and updates its share of the parameters.

    Two processes with one thread each are much faster than one process with two
    threads, because they synchronize twice per step, not after every operation. The
    master parameters are float32 and shared; each process computes with a
    bfloat16 copy of the matrices.
    """
    torch.set_num_threads(1)
    ids, marks = ids.numpy(), marks.numpy()
    params = list(master.parameters())
    sizes = [p.numel() for p in params]
    model = Llama()
    if not args.float32:
        model.bfloat16()
        model.model.embed_tokens.float()      # its gradient sums thousands of small terms
    local = list(model.parameters())
    mine = [k for k in range(len(params)) if k % args.workers == rank]
    matrices = [k for k in mine if params[k].dim() == 2 and k > 0]     # 0 is the embedding
    muon = Muon([params[k] for k in matrices], torch.float32 if args.float32 else torch.bfloat16)
    adam = torch.optim.AdamW([params[k] for k in mine if k not in matrices], betas=(0.9, 0.98), weight_decay=0.0)
    order = np.random.default_rng(args.seed).permutation(len(ids))
    weights = torch.tensor(WEIGHTS)
    if rank == 0:
        held_out = held_out_batches(Tokenizer.from_file(os.path.join(args.out, "tokenizer.json")), 300)
        average = Llama()  # moving average of the weights over the last steps: this is exported
        average.load_state_dict(master.state_dict())
    began, total = time.time(), 0.0
    for step in range(args.steps):
        with torch.no_grad():
            torch._foreach_copy_(local, params)
        take = order[step * args.batch:(step + 1) * args.batch]
        w = weights[torch.from_numpy(marks[take][:, 1:].astype(np.int64))]
        share = w[rank::args.workers].flatten()
        i = torch.from_numpy(ids[take][rank::args.workers].astype(np.int64))
        logits = model(i[:, :-1])
        each = F.cross_entropy(logits.flatten(0, 1).float(), i[:, 1:].flatten(), reduction="none")
        loss = (each * share).sum() / w.sum()
        for p in local:
            p.grad = None
        loss.backward()
        for to, p in zip(grads[rank].split(sizes), local):
            to.copy_(p.grad.flatten())
        total += loss.item() * args.workers
        if rank == 0:
            done[0] = max(step / args.steps, (time.time() - began) / 60 / args.minutes if args.minutes else 0)
        barrier.wait()
        at = min(float(done[0]), 1.0)
        summed = grads.sum(0).split(sizes)
        for k in mine:
            params[k].grad = summed[k].view_as(params[k])
        scale = schedule(at, step, 20 if args.resume else 100)
        muon.step(args.rate * scale)
        for g in adam.param_groups:
            g["lr"] = args.rate * 0.1 * scale
        adam.step()
        barrier.wait()
        last = at == 1 or step + 1 == args.steps
        if rank != 0:
            if last:
                break
            continue
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), params, max(0.03, 1 / (step + 1)))
        if (step + 1) % 20 == 0:
            print(f"step {step + 1} loss {total / 20:.4f} scale {scale:.3f} {(time.time() - began) / (step + 1):.2f} s/step", flush=True)
            total = 0.0
        if (step + 1) % 100 == 0 or last:
            print(f"step {step + 1}, {(time.time() - began) / 60:.1f} minutes: held-out "
                  + ", ".join(f"{answers_right(average, batch):.1%} of {form}" for form, batch in held_out.items()) + " right", flush=True)
            save(average, checkpoint)
        if last:
            break


def save(model, path):
    torch.save({"model": model.state_dict()}, path + ".new")
    os.replace(path + ".new", path)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", required=True, help="folder of the finished model")
    p.add_argument("--work", default="work", help="folder for checkpoints")
    p.add_argument("--steps", type=int, default=2500)
    p.add_argument("--minutes", type=float, help="end by the clock, if that is before --steps (on a busy machine)")
    p.add_argument("--batch", type=int, default=16, help="rows a step")
    p.add_argument("--rate", type=float, default=0.015, help="Muon's learning rate; AdamW takes a tenth")
    p.add_argument("--workers", type=int, default=2, help="processes, of one thread each")
    p.add_argument("--requests", type=float, default=0.4, metavar="SHARE", help="of the documents: chats whose request has a tool or asks for JSON; above 0 the chat template shows tools")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--float32", action="store_true", help="no bfloat16 (slower where the CPU has AMX)")
    p.add_argument("--resume", action="store_true", help="start from the checkpoint in --work, or else from the model in --out")
    p.add_argument("--export-only", action="store_true")
    args = p.parse_args()

    torch.set_num_threads(1)         # one thread per process
    torch.manual_seed(args.seed)
    os.makedirs(args.work, exist_ok=True)
    checkpoint = os.path.join(args.work, "checkpoint.pt")
    model = Llama()
    if args.export_only:
        model.load_state_dict(torch.load(checkpoint, weights_only=True)["model"])
        export.write(model, args.out, tools=args.requests > 0)
        return

    began = time.time()
    if args.resume and os.path.exists(checkpoint):
        model.load_state_dict(torch.load(checkpoint, weights_only=True)["model"])
    elif args.resume:
        finished = load_file(os.path.join(args.out, "model.safetensors"))
        model.load_state_dict({k: v.float() for k, v in finished.items()})
    else:
        tokenizer.save(tokenizer.train(), args.out)
    ids, marks = make_rows(args.out, args.steps * args.batch, args.seed, args.requests)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {len(ids)} rows of {ROW} tokens, "
          f"{(ids[:, :-1] != tokenizer.END).mean():.1%} filled, {time.time() - began:.0f} s to prepare", flush=True)

    model.share_memory()
    grads = torch.zeros(args.workers, sum(p.numel() for p in model.parameters())).share_memory_()
    context = multiprocessing.get_context("spawn")  # a forked autograd engine hangs
    barrier = context.Barrier(args.workers)
    done = torch.zeros(1).share_memory_()  # progress: all processes must use the same learning rate
    team = [context.Process(target=worker, args=(rank, args, model, grads, barrier, done, torch.from_numpy(ids).share_memory_(),
                                                    torch.from_numpy(marks).share_memory_(), checkpoint))
            for rank in range(args.workers)]
    for t in team:
        t.start()
    for t in team:
        t.join()
    model.load_state_dict(torch.load(checkpoint, weights_only=True)["model"])
    export.write(model, args.out, tools=args.requests > 0)


if __name__ == "__main__":
    main()
