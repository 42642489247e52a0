"""A compact Llama in plain PyTorch with Hugging Face's parameter names."""
import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 1024,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "hidden_act": "silu",
    "max_position_embeddings": 131072,
    "initializer_range": 0.04,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "rope_scaling": None,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "mlp_bias": False,
    "pretraining_tp": 1,
    "tie_word_embeddings": True,
    "use_cache": True,
    "bos_token_id": 1008,
    "eos_token_id": [1009, 1012],
    "torch_dtype": "bfloat16",
}


class Norm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv, self.dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        h = c["hidden_size"]
        self.q_proj = nn.Linear(h, self.heads * self.dim, bias=False)
        self.k_proj = nn.Linear(h, self.kv * self.dim, bias=False)
        self.v_proj = nn.Linear(h, self.kv * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, h, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q = rotate(self.q_proj(x).view(b, t, self.heads, self.dim).transpose(1, 2), cos, sin)
        k = rotate(self.k_proj(x).view(b, t, self.kv, self.dim).transpose(1, 2), cos, sin)
        v = self.v_proj(x).view(b, t, self.kv, self.dim).transpose(1, 2)
        k, v = (y.repeat_interleave(self.heads // self.kv, 1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        h, m = c["hidden_size"], c["intermediate_size"]
        self.gate_proj = nn.Linear(h, m, bias=False)
        self.up_proj = nn.Linear(h, m, bias=False)
        self.down_proj = nn.Linear(m, h, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = Attention(c)
        self.post_attention_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.mlp = MLP(c)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.inv_freq = c["rope_theta"] ** (-torch.arange(0, c["head_dim"], 2).float() / c["head_dim"])

    def forward(self, ids):
        angle = torch.outer(torch.arange(ids.shape[1]).float(), self.inv_freq).repeat(1, 2)
        dtype = self.norm.weight.dtype    # the embedding itself may stay in float32
        x = self.embed_tokens(ids).to(dtype)
        cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


class Llama(nn.Module):
    """The output layer is tied to the embedding."""

    def __init__(self, c=CONFIG):
        super().__init__()
        self.model = Decoder(c)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                std = c["initializer_range"]
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    std /= (2 * c["num_hidden_layers"]) ** 0.5
                nn.init.normal_(p, std=std)

    def forward(self, ids):
        x = self.model(ids)
        return F.linear(x, self.model.embed_tokens.weight.to(x.dtype))
