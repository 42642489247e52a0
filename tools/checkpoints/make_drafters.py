#!/usr/bin/env python3
"""Makes tiny models with drafting heads, and the heads' proposals in float32.

    make_drafters.py tests/data/checkpoints [name ...]

Needs torch, transformers and safetensors. The heads are trained on greedy answers of their models, so that some proposals are
correct. drafts.json: greedy answers and, for every length of the text, the three tokens that a head proposes one after another. Each is
computed by a pass over all rows. For the last length, the file also has their logits.

A head's row is computed from the token after its own position and the model's hidden row at that position; rows of proposed tokens use
the head's own hidden row. Sources: the technical report of DeepSeek V3, section 2.2, and vLLM's llama_eagle3.py, deepseek_mtp.py,
llama_eagle.py, glm4_moe_mtp.py, mimo_mtp.py and qwen3_next_mtp.py; the layers themselves are from transformers.

A DFlash drafter reads the text's last token, mask tokens, and the hidden rows of all earlier tokens; it drafts all tokens in one pass.
Source: the authors' dflash.py (z-lab/dflash).
"""
import copy
import json
import pathlib
import sys
import zlib

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from arguments import arguments  # noqa: E402
from make_variants import (  # noqa: E402
    COMMON,
    DELTA,
    LATENT,
    PROMPT_LENGTHS,
    TINY,
    golden_case,
    randomize,
)

PROMPTS, ANSWER, DRAFTS = (5, 24, 47), 40, 3
TRAINED_TEXTS, TRAINED_LENGTH, TRAINING_STEPS = 48, 64, 400
BASE = {**COMMON, "tie_word_embeddings": False}
TARGETS = {
    "tiny-eagle3-target": {**BASE, **TINY, "model_type": "llama", "architectures": ["LlamaForCausalLM"], "intermediate_size": 48,
                           "num_hidden_layers": 8, "rope_theta": 10000.0},
    # num_hidden_layers does not count the layer of the drafting head.
    "tiny-mtp-deepseek": {**BASE, **LATENT, "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "q_lora_rank": 20,
                          "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 2,
                          "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.5, "rope_theta": 10000.0,
                          "num_nextn_predict_layers": 1},
    "tiny-mtp-glm": {**BASE, **TINY, "model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"], "intermediate_size": 48,
                     "moe_intermediate_size": 24, "num_hidden_layers": 2, "n_routed_experts": 6, "num_experts_per_tok": 2,
                     "n_shared_experts": 1, "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.5, "n_group": 1,
                     "topk_group": 1, "use_qk_norm": True, "attention_bias": True, "partial_rotary_factor": 0.5, "rope_theta": 10000.0,
                     "num_nextn_predict_layers": 1},
    "tiny-mtp-mimo": {**BASE, **TINY, "model_type": "mimo", "architectures": ["MiMoForCausalLM"], "intermediate_size": 48,
                      "num_hidden_layers": 2, "rope_theta": 640000.0, "attention_bias": True, "num_nextn_predict_layers": 1},
    "tiny-mtp-qwen": {**BASE, **DELTA, "model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"], "intermediate_size": 48,
                      "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "num_experts": 6, "num_experts_per_tok": 2,
                      "norm_topk_prob": True, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 12,
                      "linear_value_head_dim": 20},
}
# Latent vectors of a size that device kernels support.
TARGETS["tiny-mtp-deepseek-even"] = {**TARGETS["tiny-mtp-deepseek"], "kv_lora_rank": 24, "q_lora_rank": 24}
EAGLE3 = {
    "tiny-eagle3": {"target": "tiny-eagle3-target", "outputs": 96},
    # In the format of the speculators library.
    "tiny-eagle3-speculators": {"target": "tiny-eagle3-target", "outputs": 80, "layers": [1, 3, 6], "norm_before_residual": True},
}
EAGLE1 = {"tiny-eagle1": "tiny-eagle3-target"}
# The block is longer than the number of proposed tokens; its first tokens are proposed.
DFLASH = {"tiny-dflash": {"target": "tiny-eagle3-target", "block": 6, "mask": 127, "layers": 2, "reads": [1, 3, 5]}}


class Target:
    """A transformers model that also returns the hidden rows of a text."""

    def __init__(self, name):
        self.settings = TARGETS[name]
        self.generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        settings = copy.deepcopy(self.settings)
        model_type = settings.pop("model_type")
        settings.pop("architectures")
        self.layers = settings["num_hidden_layers"]
        self.has_mtp = name.startswith("tiny-mtp")
        settings["num_hidden_layers"] += self.has_mtp
        if self.has_mtp and "layer_types" in settings:
            settings["layer_types"] = [*settings["layer_types"], "full_attention"]
        if model_type == "mimo":
            model_type = "qwen2"
        config = AutoConfig.for_model(model_type, **settings)
        config._attn_implementation = "eager"
        self.model = AutoModelForCausalLM.from_config(config).float().eval()
        randomize(self.model, self.generator)
        round_weights(self.model)
        self.model.requires_grad_(False)
        inner = self.model.model
        self.block = inner.layers[self.layers] if self.has_mtp else None
        inner.layers = inner.layers[: self.layers]
        inner.config.num_hidden_layers = self.layers
        if hasattr(inner.config, "layer_types") and inner.config.layer_types is not None:
            inner.config.layer_types = inner.config.layer_types[: self.layers]
        self.inputs = [None] * self.layers
        for i, layer in enumerate(inner.layers):
            layer.register_forward_pre_hook(lambda _, args, kwargs, i=i: self.inputs.__setitem__(i, args[0] if args else kwargs["hidden_states"]),
                                            with_kwargs=True)
        inner.norm.register_forward_hook(lambda _, args, output: setattr(self, "normed", output))

    def run(self, tokens):
        """Logits, the inputs of the layers, and the rows after the final norm, for texts [texts, length]."""
        logits = self.model(tokens, use_cache=False).logits
        return logits, list(self.inputs), self.normed

    def extend(self, tokens, count):
        for _ in range(count):
            tokens = torch.cat([tokens, self.run(tokens)[0][:, -1].argmax(-1, keepdim=True)], 1)
        return tokens

    def rope(self, x, positions):
        return self.model.model.rotary_emb(x, positions)


def round_weights(module):
    # Except RoPE frequencies, which no checkpoint stores.
    buffers = [buffer for name, buffer in module.named_buffers() if "inv_freq" not in name]
    for parameter in [*module.parameters(), *buffers]:
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(torch.bfloat16).float()


def rms(x, weight, eps):
    return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def causal(length):
    return torch.full((length, length), torch.finfo(torch.float32).min).triu(1)[None, None]


class Head(torch.nn.Module):
    def __init__(self, target):
        super().__init__()
        self.target = [target]  # a list, so that torch does not register it as a submodule
        self.eps = target.settings["rms_norm_eps"]
        self.size = target.settings["hidden_size"]

    def new(self, *shape, scale=None):
        numbers = torch.randn(shape, generator=self.target[0].generator)
        if len(shape) == 1:
            return torch.nn.Parameter(1 + 0.2 * numbers)
        return torch.nn.Parameter(numbers * (scale or shape[-1] ** -0.5))

    def targets_of(self, logits):
        return logits.argmax(-1)

    def propose(self, tokens, rows, count):
        """The next `count` tokens of one text, and the logits of each. `rows`: the model's hidden rows of the text."""
        hidden = self.begin(rows)[:, : len(tokens) - 1]
        follows, drafts, all_logits = tokens[1:], [], []
        for _ in range(count):
            logits, own = self.forward(follows[None], hidden)
            all_logits.append(logits[0, -1])
            drafts.append(int(self.targets_of(logits[0, -1])))
            follows = torch.cat([follows, torch.tensor([drafts[-1]])])
            hidden = torch.cat([hidden, own[:, -1:]], 1)
        return drafts, all_logits

    def begin(self, rows):
        return rows


class Mtp(Head):
    """[norm(embedding), norm(hidden)], or in the other order, projected; a layer; a norm; the model's head."""

    def __init__(self, target, hidden_first=False, keeps_norm=False, offset=0.0):
        super().__init__(target)
        self.block = target.block.requires_grad_(True)
        self.hidden_first, self.keeps_norm, self.offset = hidden_first, keeps_norm, offset
        self.projection = self.new(self.size, 2 * self.size)
        self.token_norm, self.hidden_norm, self.norm = (self.new(self.size) for _ in range(3))
        if offset:
            for norm in (self.token_norm, self.hidden_norm, self.norm):
                norm.data -= offset

    def rows_of(self, inputs, normed):
        return normed

    def forward(self, follows, hidden):
        target = self.target[0]
        length = follows.shape[1]
        embedded = target.model.model.embed_tokens(follows)
        halves = [rms(embedded, self.token_norm + self.offset, self.eps), rms(hidden, self.hidden_norm + self.offset, self.eps)]
        if self.hidden_first:
            halves.reverse()
        x = torch.cat(halves, -1) @ self.projection.T
        positions = torch.arange(length)[None]
        x = self.block(x, attention_mask=causal(length), position_ids=positions, past_key_values=None, use_cache=False,
                       position_embeddings=target.rope(x, positions))
        x = x[0] if isinstance(x, tuple) else x
        normed = rms(x, self.norm + self.offset, self.eps)
        return target.model.lm_head(normed), normed if self.keeps_norm else x


class Eagle3(Head):
    """A projection of three hidden rows; a Llama layer whose attention reads [norm(embedding), norm(hidden)]."""

    def __init__(self, target, settings, ids):
        super().__init__(target)
        s, size = target.settings, self.size
        self.settings, self.ids = settings, torch.tensor(ids)
        self.layers = settings.get("layers") or [2, target.layers // 2, target.layers - 3]
        self.heads, self.kv_heads, self.dim = s["num_attention_heads"], s["num_key_value_heads"], s["head_dim"]
        self.fc = self.new(size, 3 * size)
        self.q_proj = self.new(self.heads * self.dim, 2 * size)
        self.k_proj = self.new(self.kv_heads * self.dim, 2 * size)
        self.v_proj = self.new(self.kv_heads * self.dim, 2 * size)
        self.o_proj = self.new(size, self.heads * self.dim)
        self.gate_proj = self.new(s["intermediate_size"], size)
        self.up_proj = self.new(s["intermediate_size"], size)
        self.down_proj = self.new(size, s["intermediate_size"])
        self.input_layernorm, self.hidden_norm, self.post_attention_layernorm, self.norm = (self.new(size) for _ in range(4))
        self.lm_head = self.new(len(ids), size)

    def rows_of(self, inputs, normed):
        return torch.cat([inputs[layer] for layer in self.layers], -1)

    def begin(self, rows):
        return rows @ self.fc.T

    def targets_of(self, logits):
        return self.ids[logits.argmax(-1)]

    def forward(self, follows, hidden):
        target = self.target[0]
        texts, length = follows.shape
        residual = hidden
        normed = rms(hidden, self.hidden_norm, self.eps)
        if self.settings.get("norm_before_residual"):
            residual = normed
        embedded = target.model.model.embed_tokens(follows)
        x = torch.cat([rms(embedded, self.input_layernorm, self.eps), normed], -1)
        cos, sin = target.rope(x, torch.arange(length)[None])

        def split(weight, heads, rotates):
            y = (x @ weight.T).view(texts, length, heads, self.dim).transpose(1, 2)
            if not rotates:
                return y
            left, right = y.chunk(2, -1)
            return y * cos[:, None] + torch.cat([-right, left], -1) * sin[:, None]

        q, k, v = split(self.q_proj, self.heads, True), split(self.k_proj, self.kv_heads, True), split(self.v_proj, self.kv_heads, False)
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        weights = (q @ k.transpose(2, 3) * self.dim**-0.5 + causal(length)).softmax(-1)
        residual = residual + (weights @ v).transpose(1, 2).reshape(texts, length, -1) @ self.o_proj.T
        x = rms(residual, self.post_attention_layernorm, self.eps)
        residual = residual + (torch.nn.functional.silu(x @ self.gate_proj.T) * (x @ self.up_proj.T)) @ self.down_proj.T
        return rms(residual, self.norm, self.eps) @ self.lm_head.T, residual


class Eagle1(Head):
    """[embedding, hidden] projected; a Llama layer without a norm before attention; the model's head, without a norm."""

    def __init__(self, target):
        super().__init__(target)
        config = copy.deepcopy(target.model.config)
        self.block = type(target.model.model.layers[0])(config, 0).float()
        self.block.input_layernorm = torch.nn.Identity()
        randomize(self.block, target.generator)
        self.fc = self.new(self.size, 2 * self.size)
        self.bias = torch.nn.Parameter(0.1 * torch.randn(self.size, generator=target.generator))

    def rows_of(self, inputs, normed):
        return normed

    def forward(self, follows, hidden):
        target = self.target[0]
        length = follows.shape[1]
        x = torch.cat([target.model.model.embed_tokens(follows), hidden], -1) @ self.fc.T + self.bias
        positions = torch.arange(length)[None]
        x = self.block(x, attention_mask=causal(length), position_ids=positions, past_key_values=None, use_cache=False,
                       position_embeddings=target.rope(x, positions))
        x = x[0] if isinstance(x, tuple) else x
        return target.model.lm_head(x), x


class DflashLayer(torch.nn.Module):
    """A Qwen3 layer whose rows also attend to keys and values of the context's rows, and to each other in both directions."""

    def __init__(self, head):
        super().__init__()
        s, size = head.target[0].settings, head.size
        self.heads, self.kv_heads, self.dim, self.eps = s["num_attention_heads"], s["num_key_value_heads"], s["head_dim"], head.eps
        self.q_proj = head.new(self.heads * self.dim, size)
        self.k_proj = head.new(self.kv_heads * self.dim, size)
        self.v_proj = head.new(self.kv_heads * self.dim, size)
        self.o_proj = head.new(size, self.heads * self.dim)
        self.q_norm, self.k_norm = head.new(self.dim), head.new(self.dim)
        self.gate_proj = head.new(s["intermediate_size"], size)
        self.up_proj = head.new(s["intermediate_size"], size)
        self.down_proj = head.new(size, s["intermediate_size"])
        self.input_layernorm, self.post_attention_layernorm = head.new(size), head.new(size)

    def forward(self, residual, context, cos, sin):
        x = rms(residual, self.input_layernorm, self.eps)
        seen = torch.cat([context, x], 1)

        def split(rows, weight, heads):
            return (rows @ weight.T).view(rows.shape[0], rows.shape[1], heads, self.dim)

        def rotate(y):
            y = y.transpose(1, 2)
            left, right = y.chunk(2, -1)
            count = y.shape[2]
            return y * cos[:, None, -count:] + torch.cat([-right, left], -1) * sin[:, None, -count:]

        q = rotate(rms(split(x, self.q_proj, self.heads), self.q_norm, self.eps))
        k = rotate(rms(split(seen, self.k_proj, self.kv_heads), self.k_norm, self.eps))
        v = split(seen, self.v_proj, self.kv_heads).transpose(1, 2)
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        weights = (q @ k.transpose(2, 3) * self.dim**-0.5).softmax(-1)
        residual = residual + (weights @ v).transpose(1, 2).reshape(x.shape[0], x.shape[1], -1) @ self.o_proj.T
        x = rms(residual, self.post_attention_layernorm, self.eps)
        return residual + (torch.nn.functional.silu(x @ self.gate_proj.T) * (x @ self.up_proj.T)) @ self.down_proj.T


class Dflash(Head):
    def __init__(self, target, settings):
        super().__init__(target)
        self.settings = settings
        self.fc = self.new(self.size, len(settings["reads"]) * self.size)
        self.hidden_norm, self.norm = self.new(self.size), self.new(self.size)
        self.layers = torch.nn.ModuleList([DflashLayer(self) for _ in range(settings["layers"])])

    def rows_of(self, inputs, normed):
        # The output of a layer is the input of the next one.
        return torch.cat([inputs[layer + 1] for layer in self.settings["reads"]], -1)

    def forward(self, last, rows):
        """Logits of the block after the context, whose hidden rows are given; `last`: the token after the context, [texts]."""
        target = self.target[0]
        context = rms(rows @ self.fc.T, self.hidden_norm, self.eps)
        block = torch.full((len(last), self.settings["block"]), self.settings["mask"])
        block[:, 0] = last
        x = target.model.model.embed_tokens(block)
        cos, sin = target.rope(x, torch.arange(rows.shape[1] + block.shape[1])[None])
        for layer in self.layers:
            x = layer(x, context, cos, sin)
        return target.model.lm_head(rms(x, self.norm, self.eps))

    def propose(self, tokens, rows, count):
        logits = self.forward(tokens[-1:], rows[:, : len(tokens) - 1])[0, 1 : count + 1]
        return logits.argmax(-1).tolist(), list(logits)


def train_dflash(head, texts, first):
    target = head.target[0]
    with torch.no_grad():
        rows = head.rows_of(*target.run(texts)[1:])
    optimizer = torch.optim.Adam(head.parameters(), lr=3e-3)
    block = head.settings["block"]
    for _ in range(5 * TRAINING_STEPS):  # each step uses one block of a text
        begin = int(torch.randint(first, texts.shape[1] - block + 1, (1,), generator=target.generator))
        logits = head(texts[:, begin], rows[:, :begin])[:, 1:]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), texts[:, begin + 1 : begin + block].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    round_weights(head)
    head.requires_grad_(False)
    return float(loss.detach())


def train(head, texts, first):
    """Trains the head on the texts' answers, which begin at position `first`."""
    target = head.target[0]
    with torch.no_grad():
        rows = head.rows_of(*target.run(texts)[1:])
    labels = texts[:, 2:]
    known = torch.zeros_like(labels, dtype=torch.bool)
    known[:, first - 2 :] = True
    if isinstance(head, Eagle3):
        place = torch.full((target.settings["vocab_size"],), -1)
        place[head.ids] = torch.arange(len(head.ids))
        labels = place[labels]
        known &= labels >= 0
    parameters = [p for p in head.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=3e-3)
    for _ in range(TRAINING_STEPS):
        logits, own = head(texts[:, 1:], head.begin(rows)[:, :-1])
        again, _ = head(texts[:, 2:], own[:, :-1])  # a second pass, with the head's own rows
        loss = torch.nn.functional.cross_entropy(logits[:, :-1][known], labels[known])
        loss = loss + 0.5 * torch.nn.functional.cross_entropy(again[:, :-1][known[:, 1:]], labels[:, 1:][known[:, 1:]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    round_weights(head)
    head.requires_grad_(False)
    return float(loss)


@torch.no_grad()
def golden(head):
    target = head.target[0]
    cases = []
    for length in PROMPTS:
        prompt = torch.randint(3, target.settings["vocab_size"], (length,), generator=target.generator)
        text = target.extend(prompt[None], ANSWER)[0]
        rows = head.rows_of(*target.run(text[None])[1:])
        drafts = [head.propose(text[:end], rows, DRAFTS) for end in range(length + 1, len(text) + 1)]
        right = sum(int(text[length + 1 + i]) == tokens[0] for i, (tokens, _) in enumerate(drafts[:-1]))
        print("  prompt of %d: %d of %d first proposals are right" % (length, right, len(drafts) - 1))
        cases.append({"prompt": prompt.tolist(), "answer": text[length:].tolist(), "drafts": [tokens for tokens, _ in drafts],
                      "logits": [[round(float(x), 5) for x in logits] for logits in drafts[-1][1]]})
    return {"cases": cases}


@torch.no_grad()
def texts_of(target):
    prompts = torch.randint(3, target.settings["vocab_size"], (TRAINED_TEXTS, 16), generator=target.generator)
    return target.extend(prompts, TRAINED_LENGTH - 16)


def stored(state):
    """Splits experts into one tensor each, as in published checkpoints."""
    tensors = {}
    for name, value in state.items():
        value = value.to(torch.bfloat16).contiguous()
        if name.endswith(".experts.gate_up_proj"):
            for i, expert in enumerate(value):
                gate, up = expert.chunk(2)
                base = name.removesuffix("gate_up_proj") + str(i)
                tensors[base + ".gate_proj.weight"], tensors[base + ".up_proj.weight"] = gate.contiguous(), up.contiguous()
        elif name.endswith(".experts.down_proj"):
            for i, expert in enumerate(value):
                tensors[name.removesuffix("down_proj") + str(i) + ".down_proj.weight"] = expert.contiguous()
        else:
            tensors[name] = value
    return tensors


def write(folder, tensors, config, drafts=None):
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if drafts is not None:
        (folder / "drafts.json").write_text(json.dumps(drafts, separators=(",", ":")) + "\n")


def make_mtp(name, folder):
    target = Target(name)
    kind = target.settings["model_type"]
    head = Mtp(target, **{"mimo": {"hidden_first": True, "keeps_norm": True}, "qwen3_next": {"keeps_norm": True, "offset": 1.0}}.get(kind, {}))
    print(name, train(head, texts_of(target), 16))
    state = target.model.state_dict()
    last = "model.layers.%d." % target.layers
    layer, outer = {"mimo": ("model.mtp_layers.0.", "model.mtp_layers.0."), "qwen3_next": ("mtp.layers.0.", "mtp.")}.get(kind, (last, last))
    names = {"mimo": ("input_proj", "token_layernorm", "hidden_layernorm", "final_layernorm"),
             "qwen3_next": ("fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")}.get(kind, ("eh_proj", "enorm", "hnorm", "shared_head.norm"))
    state |= {layer + key: value for key, value in head.block.state_dict().items()}
    for own, value in zip(names, (head.projection, head.token_norm, head.hidden_norm, head.norm)):
        state[outer + own + ".weight"] = value.data
    if layer == last:  # published checkpoints contain copies of these
        state[last + "embed_tokens.weight"] = state["model.embed_tokens.weight"]
        state[last + "shared_head.head.weight"] = state["lm_head.weight"]
    tensors = {key: value.clone() for key, value in stored(state).items()}
    write(folder, tensors, {**target.settings, "torch_dtype": "bfloat16"}, golden(head))
    if kind == "mimo":  # no other test checkpoint has this architecture
        prompts = [torch.randint(3, BASE["vocab_size"], (length,), generator=target.generator).tolist() for length in PROMPT_LENGTHS]
        cases = [golden_case(target.model, prompt) for prompt in prompts]
        (folder / "golden.json").write_text(json.dumps({"cases": cases}, separators=(",", ":")) + "\n")


def make_eagle3(name, folder):
    settings = EAGLE3[name]
    target = Target(settings["target"])
    texts = texts_of(target)
    counts = torch.bincount(texts[:, 16:].flatten(), minlength=target.settings["vocab_size"])
    ids = sorted(counts.argsort(descending=True, stable=True)[: settings["outputs"]].tolist())
    target.generator.manual_seed(zlib.crc32(name.encode()))
    head = Eagle3(target, settings, ids)
    print(name, train(head, texts, 16))
    is_speculators = "layers" in settings
    layer = "layers.0." if is_speculators else "midlayer."
    places = {"q_proj": "self_attn.", "k_proj": "self_attn.", "v_proj": "self_attn.", "o_proj": "self_attn.", "gate_proj": "mlp.",
              "up_proj": "mlp.", "down_proj": "mlp.", "input_layernorm": "", "hidden_norm": "", "post_attention_layernorm": ""}
    tensors = {(layer + places[key] if key in places else "") + key + ".weight": value.data.to(torch.bfloat16).contiguous()
               for key, value in head.named_parameters()}
    tensors["d2t"] = torch.tensor([token - i for i, token in enumerate(ids)])
    tensors["t2d"] = torch.zeros(target.settings["vocab_size"], dtype=torch.bool).scatter(0, torch.tensor(ids), True)
    shape = {key: target.settings[key] for key in ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
                                                   "head_dim", "rms_norm_eps", "hidden_act", "rope_theta", "max_position_embeddings")}
    shape["num_hidden_layers"] = 1
    if is_speculators:
        tensors["embed_tokens.weight"] = target.model.model.embed_tokens.weight.data.to(torch.bfloat16).contiguous()
        config = {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": len(ids),
                  "norm_before_residual": True, "eagle_aux_hidden_state_layer_ids": settings["layers"],
                  "target_hidden_size": target.settings["hidden_size"], "torch_dtype": "bfloat16",
                  "transformer_layer_config": {"model_type": "llama", **shape}}
    else:
        config = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", **shape, "draft_vocab_size": len(ids),
                  "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
    write(folder, tensors, config, golden(head))


def make_eagle1(name, folder):
    target = Target(EAGLE1[name])
    texts = texts_of(target)
    target.generator.manual_seed(zlib.crc32(name.encode()))
    head = Eagle1(target)
    print(name, train(head, texts, 16))
    tensors = {"layers.0." + key: value for key, value in head.block.state_dict().items()}
    tensors |= {"fc.weight": head.fc.data, "fc.bias": head.bias.data, "embed_tokens.weight": target.model.model.embed_tokens.weight.data}
    shape = {key: target.settings[key] for key in ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
                                                   "head_dim", "rms_norm_eps", "hidden_act", "rope_theta", "max_position_embeddings")}
    # Like published EAGLE heads: only the projection distinguishes this head from a model.
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **shape, "num_hidden_layers": 1, "bos_token_id": 1,
              "eos_token_id": 2, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
    write(folder, {key: value.to(torch.bfloat16).contiguous().clone() for key, value in tensors.items()}, config, golden(head))


def make_dflash(name, folder):
    settings = DFLASH[name]
    target = Target(settings["target"])
    texts = texts_of(target)
    target.generator.manual_seed(zlib.crc32(name.encode()))
    head = Dflash(target, settings)
    print(name, train_dflash(head, texts, 16))
    tensors = {}
    for key, value in head.named_parameters():
        *layer, own = key.split(".")
        attends = own in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")
        part = ["self_attn"] if attends else ["mlp"] if own in ("gate_proj", "up_proj", "down_proj") else []
        tensors[".".join([*layer, *part, own, "weight"])] = value.data.to(torch.bfloat16).contiguous()
    shape = {key: target.settings[key] for key in ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
                                                   "head_dim", "rms_norm_eps", "hidden_act", "rope_theta", "max_position_embeddings")}
    config = {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", **shape, "num_hidden_layers": settings["layers"],
              "num_target_layers": target.layers, "layer_types": ["full_attention"] * settings["layers"], "block_size": settings["block"],
              "dflash_config": {"mask_token_id": settings["mask"], "target_layer_ids": settings["reads"]}, "attention_bias": False,
              "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
    write(folder, tensors, config, golden(head))


def main():
    torch.set_num_threads(1)
    place, *names = arguments(__doc__)
    folder = pathlib.Path(place)
    for name in names or [*TARGETS, *EAGLE3, *EAGLE1, *DFLASH]:
        if name in DFLASH:
            make_dflash(name, folder / name)
        elif name in EAGLE1:
            make_eagle1(name, folder / name)
        elif name in EAGLE3:
            make_eagle3(name, folder / name)
        elif name.startswith("tiny-mtp"):
            make_mtp(name, folder / name)
        else:
            target = Target(name)
            write(folder / name, stored(target.model.state_dict()), {**target.settings, "torch_dtype": "bfloat16"})


if __name__ == "__main__":
    main()
