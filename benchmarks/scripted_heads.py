#!/usr/bin/env python3
"""Measures drafting heads whose acceptance is scripted: model and head have weights with which the head is right as often as the load says.

    benchmarks/scripted_heads.py write FOLDER [--kind eagle3|mtp]       writes FOLDER/model and, for eagle3, FOLDER/head: 3 GB
    benchmarks/scripted_heads.py measure FOLDER NAME=PORT... --load STREAMS:ACCEPTANCE [--tokens 64] [--rounds 3]

Llama 3.2 1B's shape (with a separate output head, so that embedding and head can differ), an EAGLE-3 head of this shape with 32,000
tokens, or one MTP layer. Attention and MLP of the model add zero to each row, so a row stays its token's embedding, a random code of signs; the row
of token f(t) in lm_head is the code of t: the model answers f(t), f(f(t)), ... of one long cycle. The head predicts the same, except after
the tokens whose turn it is to be wrong. The time of a step does not depend on the numbers in the weights.

`measure`: the servers answer the same questions in turn, all of a load's streams at once. Measures the tokens per second of the whole
answers after their first token. All answers must be equal. The first server is the one to compare with; `bound` is what the bytes
alone allow: tokens per step over bytes per step, with the best number of draft tokens.
"""
import argparse
import concurrent.futures
import json
import pathlib
import random
import statistics
import struct
import sys

from random_weights import BF16, SIZES, linear_shapes
from speculation import ask, counters

SHAPE = pathlib.Path(__file__).resolve().parent / "llama-3.2-1b-shape" / "config.json"
OUTPUTS = 32000  # of the EAGLE-3 head
STRIDE = 4  # its token k is token k * STRIDE of the model
ACCEPTANCES = (0.6, 0.8, 0.9, 0.0)  # one section of the cycle each
SECTION = OUTPUTS // len(ACCEPTANCES)
PERIOD = 20  # in this many tokens, the share of right tokens is exact
ONE, SMALL = struct.pack("<H", 0x3F80), struct.pack("<H", 0x3C80)  # 1 and 2^-6
CODE = 512  # numbers of a token's code that the heads read


class Script:
    """The cycle, and the tokens after which the head is wrong."""

    def __init__(self):
        drawn = random.Random(37)
        self.order = list(range(OUTPUTS))
        drawn.shuffle(self.order)
        self.follower = {a: b for a, b in zip(self.order, self.order[1:] + self.order[:1])}
        self.before = {b: a for a, b in self.follower.items()}
        self.wrong = set()
        for begin in range(0, OUTPUTS, PERIOD):
            count = round(PERIOD * (1 - ACCEPTANCES[begin // SECTION]))
            self.wrong.update(drawn.sample(self.order[begin:begin + PERIOD], count))

    def prompt(self, acceptance, place, length=16):
        """Tokens from the section with this acceptance, beginning at `place`."""
        begin = ACCEPTANCES.index(acceptance) * SECTION + place % (SECTION - 1024)
        return [STRIDE * token for token in self.order[begin:begin + length]]


def signs(seed, count):
    """A code: `count` times 2^-6 with random signs, as BF16."""
    bits = int.from_bytes(random.Random(seed).randbytes(2 * count), "little") & int.from_bytes(b"\x00\x80" * count, "little")
    return (bits | int.from_bytes(SMALL * count, "little")).to_bytes(2 * count, "little")


def writes(path, tensors):
    """Writes a file of (name, dtype, shape, rows): `rows` gives the bytes, in pieces."""
    head, end = {}, 0
    for name, dtype, shape, _ in tensors:
        size = SIZES[dtype]
        for length in shape:
            size *= length
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, _, _, rows in tensors:
            for piece in rows:
                file.write(piece)
            assert file.tell() == 8 + len(text) + head[name]["data_offsets"][1], name


def drawn(rows, columns):
    block, left = BF16.block(), 2 * rows * columns
    while left > 0:
        yield memoryview(block)[:min(left, len(block))]
        left -= len(block)


def zeros(rows, columns):
    return (bytes(2 * columns) for _ in range(rows))


def picks(rows, columns, place, value=ONE):
    """Row i is zero except for `value` in column place(i)."""
    for i in range(rows):
        row = bytearray(2 * columns)
        column = place(i)
        row[2 * column:2 * column + 2] = value
        yield bytes(row)


def ones(count):
    return [ONE * count]


def matrix(name, rows, columns, data):
    return (name + ".weight", "BF16", [rows, columns], data)


def layer(prefix, config):
    """A layer that adds zero, its other numbers random."""
    silent = ("self_attn.o_proj", "mlp.down_proj")
    tensors = [matrix(prefix + module, *shape, zeros(*shape) if module in silent else drawn(*shape)) for module, shape in linear_shapes(config).items()]
    if config["attention_bias"]:
        tensors += [("%sself_attn.%s_proj.bias" % (prefix, name), "BF16", [rows], zeros(1, rows))
                    for name, rows in (("q", linear_shapes(config)["self_attn.q_proj"][0]), *((n, linear_shapes(config)["self_attn.k_proj"][0]) for n in "kv"))]
    return tensors + [(prefix + norm + ".weight", "BF16", [config["hidden_size"]], ones(config["hidden_size"]))
                      for norm in ("input_layernorm", "post_attention_layernorm")]


def model_tensors(config, script, is_mtp):
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]

    def code(token, is_row):
        # For MTP, the second half of an embedding tells the head whether to be wrong; the rows of lm_head ignore that half.
        if not is_mtp:
            return signs(token, hidden)
        is_wrong = not is_row and token % STRIDE == 0 and token // STRIDE in script.wrong
        return signs(token, hidden // 2) + (signs(-1 - token, hidden // 2) if is_wrong else bytes(hidden))

    def followed(token):
        k, rest = divmod(token, STRIDE)
        return STRIDE * script.before[k] if rest == 0 and k < OUTPUTS else token

    tensors = [matrix("model.embed_tokens", vocabulary, hidden, (code(t, False) for t in range(vocabulary))),
               matrix("lm_head", vocabulary, hidden, (code(followed(t), True) for t in range(vocabulary))),
               ("model.norm.weight", "BF16", [hidden], ones(hidden))]
    for i in range(config["num_hidden_layers"]):
        tensors += layer("model.layers.%d." % i, config)
    if is_mtp:
        prefix = "model.mtp_layers.0."
        tensors += layer(prefix, config)
        tensors += [(prefix + norm + ".weight", "BF16", [hidden], ones(hidden)) for norm in ("token_layernorm", "hidden_layernorm", "final_layernorm")]
        tensors.append(matrix(prefix + "input_proj", hidden, 2 * hidden, mtp_rows(hidden)))
    return tensors


def mtp_rows(hidden):
    # [norm(hidden), norm(embedding)]: the first half of the embedding, plus four times its second.
    for i in range(hidden):
        row = bytearray(4 * hidden)
        if i < hidden // 2:
            for column, value in ((hidden + i, ONE), (hidden + hidden // 2 + i, struct.pack("<H", 0x4080))):
                row[2 * column:2 * column + 2] = value
        yield bytes(row)


def head_tensors(config, script):
    """An EAGLE-3 head that attends to its own token only and predicts from `CODE` numbers of its code."""
    hidden, wide, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    kv, group = config["num_key_value_heads"] * dim, config["num_attention_heads"] // config["num_key_value_heads"]
    assert kv == CODE

    def number(i):  # the number of the code's element that is in output i of attention
        return i // (group * dim) * dim + i % dim

    def row(k):
        # The code of the token before k, as attention outputs it; if the head is to be wrong after that token, the code of no token.
        token = script.before[k]
        code = signs(STRIDE * token if token not in script.wrong else -1 - STRIDE * token, hidden)
        return b"".join(code[2 * number(i):2 * number(i) + 2] for i in range(hidden))

    prefix = "midlayer."
    return [matrix("fc", hidden, 3 * hidden, zeros(hidden, 3 * hidden)),
            matrix(prefix + "self_attn.q_proj", hidden, 2 * hidden, picks(hidden, 2 * hidden, number, struct.pack("<H", 0x4100))),
            matrix(prefix + "self_attn.k_proj", kv, 2 * hidden, picks(kv, 2 * hidden, lambda i: i)),
            matrix(prefix + "self_attn.v_proj", kv, 2 * hidden, picks(kv, 2 * hidden, lambda i: i)),
            matrix(prefix + "self_attn.o_proj", hidden, hidden, picks(hidden, hidden, lambda i: i)),
            matrix(prefix + "mlp.gate_proj", wide, hidden, drawn(wide, hidden)),
            matrix(prefix + "mlp.up_proj", wide, hidden, drawn(wide, hidden)),
            matrix(prefix + "mlp.down_proj", hidden, wide, zeros(hidden, wide)),
            *((name + ".weight", "BF16", [hidden], ones(hidden)) for name in (prefix + "input_layernorm", prefix + "post_attention_layernorm", "norm")),
            (prefix + "hidden_norm.weight", "BF16", [hidden], zeros(1, hidden)),
            matrix("lm_head", OUTPUTS, hidden, (row(k) for k in range(OUTPUTS))),
            ("d2t", "I64", [OUTPUTS], (struct.pack("<q", (STRIDE - 1) * k) for k in range(OUTPUTS)))]


def write(folder, is_mtp):
    config = {**json.loads(SHAPE.read_text()), "tie_word_embeddings": False}
    if is_mtp:
        config.update(model_type="mimo", architectures=["MiMoForCausalLM"], attention_bias=True, num_nextn_predict_layers=1)
        config.pop("rope_scaling")
    script = Script()
    for name in ("model",) if is_mtp else ("model", "head"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "model" / "config.json").write_text(json.dumps(config))
    writes(folder / "model" / "model.safetensors", model_tensors(config, script, is_mtp))
    if not is_mtp:
        head = {**config, "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": OUTPUTS, "norm_before_residual": True}
        (folder / "head" / "config.json").write_text(json.dumps(head))
        writes(folder / "head" / "model.safetensors", head_tensors(config, script))


def bound(folder, acceptance):
    """The best number of draft tokens, and its gain, if only the bytes of weights counted."""
    config = json.loads((folder / "model" / "config.json").read_text())
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    a_layer = sum(rows * columns for rows, columns in linear_shapes(config).values())
    step = config["num_hidden_layers"] * a_layer + vocabulary * hidden
    if (folder / "head").exists():
        q, kv = config["num_attention_heads"] * config["head_dim"], config["num_key_value_heads"] * config["head_dim"]
        later = a_layer + (q + 2 * kv) * hidden + OUTPUTS * hidden
        first = later + 3 * hidden * hidden
    else:
        first = later = a_layer + 2 * hidden * hidden + vocabulary * hidden
    gains = {0: 1.0}
    for length in range(1, 17):
        gains[length] = sum(acceptance**i for i in range(length + 1)) / (1 + (first + (length - 1) * later) / step)
    best = max(gains, key=gains.get)
    return best, gains[best], 2 * step, 2 * first, 2 * later


def measure(options):
    streams, acceptance = (kind(word) for kind, word in zip((int, float), options.load.split(":")))
    servers = [(name, int(port)) for name, port in (word.split("=") for word in options.servers)]
    script, rates, told = Script(), {name: [] for name, _ in servers}, {name: {} for name, _ in servers}
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        for round_number in range(options.rounds):
            prompts = [script.prompt(acceptance, 4099 * options.seed + 613 * (round_number * streams + i)) for i in range(streams)]
            expected = None
            for name, port in servers[::1 if round_number % 2 == 0 else -1]:
                before = counters(port)
                answers = list(pool.map(lambda prompt, port=port: ask(port, prompt, options.tokens, {"temperature": options.temperature, "seed": 1}), prompts))
                expected = expected or [answer for _, answer in answers]
                assert expected == [answer for _, answer in answers], "%s answered otherwise" % name
                rates[name].append(streams * (options.tokens - 1) / max(seconds for seconds, _ in answers))
                for key, value in counters(port).items():
                    told[name][key] = told[name].get(key, 0) + value - before.get(key, 0)
    length, gain, *_ = bound(pathlib.Path(options.folder), acceptance)
    first = servers[0][0]
    for name, _ in servers:
        ratios = [a / b for a, b in zip(rates[name], rates[first])]
        drafts, proposed, accepted = (told[name].get(key, 0) for key in ("drafts_total", "draft_tokens_total", "accepted_tokens_total"))
        every = streams * options.rounds * (options.tokens - 1)
        print("%d streams, acceptance %.1f, %-8s %7.1f tokens/s, %.2f x %s (%.2f to %.2f); bound %.2f with %d; %.2f tokens a step, %.1f proposed in %d of %d steps" % (
            streams, acceptance, name, statistics.median(rates[name]), statistics.median(ratios), first, min(ratios), max(ratios), gain, length,
            every / (every - accepted), proposed / max(1, drafts), drafts, every - accepted))
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    writing = actions.add_parser("write")
    writing.add_argument("folder")
    writing.add_argument("--kind", choices=("eagle3", "mtp"), default="eagle3")
    measuring = actions.add_parser("measure")
    measuring.add_argument("folder")
    measuring.add_argument("servers", nargs="+", metavar="NAME=PORT")
    measuring.add_argument("--load", required=True, metavar="STREAMS:ACCEPTANCE", help="acceptance: %s" % ", ".join(map(str, ACCEPTANCES)))
    measuring.add_argument("--tokens", type=int, default=64)
    measuring.add_argument("--rounds", type=int, default=3)
    measuring.add_argument("--seed", type=int, default=0, help="other questions than those of another seed")
    measuring.add_argument("--temperature", type=float, default=0)
    options = parser.parse_args()
    if options.action == "write":
        write(pathlib.Path(options.folder), options.kind == "mtp")
    else:
        measure(options)


if __name__ == "__main__":
    main()
