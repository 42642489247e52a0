#!/usr/bin/env python3
"""Writes small random encoders with their tokenizers under tests/data/checkpoints. `texts.json` in each folder has the float32 outputs of
transformers and sentence-transformers for some texts.

    v/bin/pip install torch transformers sentence-transformers
    v/bin/python tools/checkpoints/make_encoders.py tests/data/checkpoints

tiny-bert-dense: the files that two Dense modules add to tiny-bert, and the resulting vectors; `... tests/data/checkpoints dense` writes
only these. tiny-bert: BERT, WordPiece, folders of sentence-transformers (mean, normalized). tiny-xlmr-score: an XLM-R cross-encoder,
Unigram. tiny-bert-classes: BERT with three classes. tiny-bert-score: a BERT cross-encoder, which distinguishes its texts by token types.
tiny-nomic: Nomic's rotary BERT, with the published names of tensors and settings. tiny-gte-score: a cross-encoder like GTE's, also with
published names. tiny-modernbert: ModernBERT as published (a masked language model), with the older names of settings.
tiny-modernbert-score: a ModernBERT classifier, on the mean or the first hidden state, with biases.
"""
import json
import pathlib

import torch
from arguments import arguments
from tokenizers import Tokenizer
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    GteConfig,
    GteForSequenceClassification,
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForSequenceClassification,
    NomicBertConfig,
    NomicBertModel,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
)

TEXTS = ["hello world", "The abacus counts beads.", "", "a", "Café déjà vu! 12,345", "beads on wires " * 12, "中文 and more", "HELLO"]
PAIRS = [["the abacus", "It counts beads."], ["hello", "world"], ["a b c", ""], ["wires", "beads on wires, beads on wires"]]
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,!?'"
WORDS = ["the", "abacus", "counts", "bead", "hello", "world", "wire", "and", "more", "on"]


def word_piece():
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + list(LETTERS) + ["##" + c for c in LETTERS[:36]] + WORDS + ["中", "文"]
    ids = {t: i for i, t in enumerate(tokens)}
    part = lambda name, kind=0: {"Sequence" if name in "AB" else "SpecialToken": {"id": name, "type_id": kind}}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                              "special": True} for i, t in enumerate(tokens[:5])],
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "TemplateProcessing", "single": [part("[CLS]"), part("A"), part("[SEP]")],
                               "pair": [part("[CLS]"), part("A"), part("[SEP]"), part("B", 1), part("[SEP]", 1)],
                               "special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in ("[CLS]", "[SEP]")}},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                      "vocab": ids}}


def unigram():
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "▁"] + list(LETTERS) + ["▁" + w for w in WORDS] + ["eads", "ires", "▁w", "ou"]
    scores = [0.0] * 4 + [-3.0 - 0.01 * i for i in range(len(tokens) - 4)]
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                              "special": True} for i, t in enumerate(tokens[:4])],
            "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]},
            "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
            "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True,
                               "add_prefix_space": True},
            "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
            "model": {"type": "Unigram", "unk_id": 3, "byte_fallback": False, "vocab": [[t, s] for t, s in zip(tokens, scores)]}}


def save(folder, model, tokenizer, **names):
    for parameter in model.parameters():  # larger values than those of a usual initialization
        parameter.data += torch.randn_like(parameter) * 0.15
    model = model.to(torch.bfloat16)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(names, tokenizer_class="PreTrainedTokenizerFast"), indent=1) + "\n")
    # Load again: RoPE frequencies were rounded together with the weights.
    return type(model).from_pretrained(folder, dtype=torch.float32).eval()


def numbers(tensor):
    return [float("%.7g" % x) for x in tensor.flatten().tolist()]


def encode(tokenizer, *texts):
    both = Tokenizer.from_str(json.dumps(tokenizer)).encode(*texts)
    return torch.tensor([both.ids]), torch.tensor([both.type_ids])


def modern_bert(root):
    torch.manual_seed(6)
    tokens = word_piece()
    names = dict(cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]", mask_token="[MASK]")
    sizes = dict(vocab_size=len(tokens["model"]["vocab"]), hidden_size=64, num_hidden_layers=4, num_attention_heads=2, intermediate_size=96,
                 max_position_embeddings=96, local_attention=12, pad_token_id=0, bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3)

    folder = root / "tiny-modernbert"
    model = save(folder, ModernBertForMaskedLM(ModernBertConfig(**sizes)), tokens, **names)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["ModernBertForMaskedLM"], "model_type": "modernbert", "attention_bias": False, "classifier_activation": "gelu",
        "classifier_bias": False, "classifier_pooling": "mean", "decoder_bias": True, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0,
        "hidden_activation": "gelu", "layer_norm_eps": 1e-5, "local_rope_theta": 10000.0, "mlp_bias": False, "norm_bias": False, "norm_eps": 1e-5,
        "position_embedding_type": "absolute", "tie_word_embeddings": True, "torch_dtype": "bfloat16", **sizes}, indent=1) + "\n")
    cases = []
    for text in TEXTS:
        ids, _ = encode(tokens, text)
        with torch.no_grad():
            hidden = model.model(ids).last_hidden_state[0]
        vectors = {"cls": hidden[0], "mean": hidden.mean(0)}
        cases.append({"text": text, "ids": ids[0].tolist(), **{kind: numbers(v / v.norm()) for kind, v in vectors.items()}})
    (folder / "texts.json").write_text(json.dumps(cases, ensure_ascii=False, separators=(",", ":")) + "\n")

    folder = root / "tiny-modernbert-score"
    layers = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
    config = ModernBertConfig(num_labels=1, classifier_pooling="mean", layer_types=layers, norm_bias=True, attention_bias=True, mlp_bias=True,
                              classifier_bias=True, **sizes)
    model = save(folder, ModernBertForSequenceClassification(config), tokens, **names)
    cases = []
    for first, second in PAIRS:
        ids, _ = encode(tokens, first, second)
        case = {"pair": [first, second], "ids": ids[0].tolist()}
        for model.config.classifier_pooling in ("cls", "mean"):
            with torch.no_grad():
                case[model.config.classifier_pooling] = model(ids).logits.item()
        cases.append(case)
    (folder / "texts.json").write_text(json.dumps(cases, ensure_ascii=False, separators=(",", ":")) + "\n")


def dense(root):
    """Two Dense modules after tiny-bert's pooling: a wider one with bias and Tanh in float32, a narrower one without them in bfloat16."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense, Normalize

    torch.manual_seed(7)
    modules = [Dense(64, 96), Dense(96, 24, bias=False, activation_function=torch.nn.Identity())]
    for module in modules:
        for parameter in module.parameters():
            parameter.data = torch.randn_like(parameter) * 0.15
    modules[1].to(torch.bfloat16)
    base = SentenceTransformer(str(root / "tiny-bert"), device="cpu", model_kwargs={"dtype": torch.float32})
    folder, kind = root / "tiny-bert-dense", "sentence_transformers.models."
    layers = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"), ("3_Dense", "Dense"), ("4_Normalize", "Normalize")]
    for module, (name, _) in zip(modules, layers[2:]):
        (folder / name).mkdir(parents=True, exist_ok=True)
        module.save(str(folder / name))
    (folder / "modules.json").write_text(json.dumps(
        [{"idx": i, "name": str(i), "path": path, "type": kind + name} for i, (path, name) in enumerate(layers)], indent=1) + "\n")
    modules[1].to(torch.float32)
    theirs = SentenceTransformer(modules=[base[0], base[1], *modules, Normalize()], device="cpu").encode(TEXTS)
    cases = [{"text": text, "embedding": numbers(torch.tensor(vector))} for text, vector in zip(TEXTS, theirs)]
    (folder / "texts.json").write_text(json.dumps(cases, ensure_ascii=False, separators=(",", ":")) + "\n")


def main(root):
    modern_bert(root)
    torch.manual_seed(5)
    sizes = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=96)
    names = dict(cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]", mask_token="[MASK]")

    folder, tokens = root / "tiny-bert", word_piece()
    model = save(folder, BertModel(BertConfig(vocab_size=len(tokens["model"]["vocab"]), max_position_embeddings=96, **sizes)), tokens, **names)
    (folder / "1_Pooling").mkdir(exist_ok=True)
    kind = "sentence_transformers.models."
    (folder / "modules.json").write_text(json.dumps([
        {"idx": 0, "name": "0", "path": "", "type": kind + "Transformer"}, {"idx": 1, "name": "1", "path": "1_Pooling", "type": kind + "Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": kind + "Normalize"}], indent=1) + "\n")
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(
        {"word_embedding_dimension": 64, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True,
         "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False}, indent=1) + "\n")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 64, "do_lower_case": true}\n')
    (folder / "config_sentence_transformers.json").write_text(
        '{"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": null, "similarity_fn_name": "cosine"}\n')
    cases = []
    for text in TEXTS:
        ids, _ = encode(tokens, text.lower())
        with torch.no_grad():
            mean = model(ids).last_hidden_state[0].mean(0)
        cases.append({"text": text, "ids": ids[0].tolist(), "embedding": numbers(mean / mean.norm())})
    from sentence_transformers import SentenceTransformer
    theirs = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32}).encode([c["text"] for c in cases])
    for case, vector in zip(cases, torch.tensor(theirs)):
        assert (torch.tensor(case["embedding"]) - vector).abs().max() < 1e-5, case["text"]
    (folder / "texts.json").write_text(json.dumps(cases, ensure_ascii=False, separators=(",", ":")) + "\n")

    folder = root / "tiny-bert-classes"
    config = BertConfig(vocab_size=len(tokens["model"]["vocab"]), max_position_embeddings=96, num_labels=3,
                        id2label={0: "no", 1: "yes", 2: "maybe"}, label2id={"no": 0, "yes": 1, "maybe": 2}, **sizes)
    model = save(folder, BertForSequenceClassification(config), tokens, **names)
    cases = []
    for text in TEXTS:
        ids, _ = encode(tokens, text)
        with torch.no_grad():
            cases.append({"text": text, "logits": numbers(model(ids).logits)})
    (folder / "texts.json").write_text(json.dumps(cases, ensure_ascii=False, separators=(",", ":")) + "\n")

    folder, tokens = root / "tiny-xlmr-score", unigram()
    config = XLMRobertaConfig(vocab_size=len(tokens["model"]["vocab"]), max_position_embeddings=98, type_vocab_size=1, num_labels=1,
                              layer_norm_eps=1e-5, **sizes)
    model = save(folder, XLMRobertaForSequenceClassification(config), tokens, cls_token="<s>", sep_token="</s>", pad_token="<pad>",
                 unk_token="<unk>")
    cases = []
    for first, second in PAIRS:
        ids, _ = encode(tokens, first, second)
        with torch.no_grad():
            cases.append({"pair": [first, second], "ids": ids[0].tolist(), "logit": model(ids).logits.item()})
    (folder / "texts.json").write_text(json.dumps(cases, ensure_ascii=False, separators=(",", ":")) + "\n")

    folder, tokens = root / "tiny-bert-score", word_piece()
    model = save(folder, BertForSequenceClassification(BertConfig(vocab_size=len(tokens["model"]["vocab"]), max_position_embeddings=96, num_labels=1,
                                                                  **sizes)), tokens, **names)
    cases = []
    cutter = Tokenizer.from_str(json.dumps(tokens))
    cutter.enable_truncation(20)
    for (first, second), cut in [(pair, cut) for pair in PAIRS for cut in (False, True)]:
        both = cutter.encode(first, second) if cut else Tokenizer.from_str(json.dumps(tokens)).encode(first, second)
        with torch.no_grad():
            logit = model(torch.tensor([both.ids]), token_type_ids=torch.tensor([both.type_ids])).logits.item()
        cases.append({"pair": [first, second], "truncate": 20 if cut else None, "ids": both.ids, "logit": logit})
    (folder / "texts.json").write_text(json.dumps(cases, ensure_ascii=False, separators=(",", ":")) + "\n")

    folder, tokens = root / "tiny-nomic", word_piece()
    model = save(folder, NomicBertModel(NomicBertConfig(vocab_size=len(tokens["model"]["vocab"]), max_position_embeddings=96, **sizes)), tokens, **names)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["NomicBertModel"], "model_type": "nomic_bert", "activation_function": "swiglu", "causal": False, "layer_norm_epsilon": 1e-12,
        "mlp_fc1_bias": False, "mlp_fc2_bias": False, "qkv_proj_bias": False, "prenorm": False, "n_embd": 64, "n_head": 2, "n_inner": 96, "n_layer": 2,
        "n_positions": 8192, "max_trained_positions": 96, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False,
        "rotary_emb_scale_base": None, "rotary_scaling_factor": 2, "type_vocab_size": 2, "use_rms_norm": False, "parallel_block": False,
        "vocab_size": len(tokens["model"]["vocab"]), "torch_dtype": "bfloat16"}, indent=1) + "\n")
    cases = []
    for text in TEXTS:
        ids, _ = encode(tokens, text)
        with torch.no_grad():
            mean = model(ids).last_hidden_state[0].mean(0)
        cases.append({"text": text, "ids": ids[0].tolist(), "embedding": numbers(mean / mean.norm())})
    (folder / "texts.json").write_text(json.dumps(cases, ensure_ascii=False, separators=(",", ":")) + "\n")

    folder, tokens = root / "tiny-gte-score", unigram()
    model = save(folder, GteForSequenceClassification(GteConfig(vocab_size=len(tokens["model"]["vocab"]), max_position_embeddings=96, type_vocab_size=1,
                                                                num_labels=1, **sizes)), tokens, cls_token="<s>", sep_token="</s>", pad_token="<pad>",
                 unk_token="<unk>")
    cases = []
    for first, second in PAIRS:
        ids, _ = encode(tokens, first, second)
        with torch.no_grad():
            cases.append({"pair": [first, second], "ids": ids[0].tolist(), "logit": model(ids).logits.item()})
    (folder / "texts.json").write_text(json.dumps(cases, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    folder, *names = arguments(__doc__)
    if names != ["dense"]:
        main(pathlib.Path(folder))
    dense(pathlib.Path(folder))
