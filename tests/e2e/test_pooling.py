"""Servers of pooling models: embeddings, classes and scores, compared with transformers in float32 (pooling.json and texts.json in the
folders of small checkpoints)."""
import base64
import json
import math
import shutil
import struct

import openai
import pytest

from serving import DATA, at_once, run, serving

CHECKPOINTS = DATA / "checkpoints"
QWEN3 = CHECKPOINTS / "qwen3-bf16"
COMMON = ["--dtype", "float32", "--max-model-len", 256, "--max-num-seqs", 8]
# The longer prompts do not fit into one step.
CHUNKS = ["--max-num-batched-tokens", 24]


def normalized(vector):
    norm = math.sqrt(sum(x * x for x in vector))
    return [x / norm for x in vector]


def cosine(a, b):
    return sum(x * y for x, y in zip(normalized(a), normalized(b)))


def assert_near(got, want, tolerance=1e-4):
    assert len(got) == len(want)
    assert max(abs(x - y) for x, y in zip(got, want)) < tolerance
    assert cosine(got, want) > 0.9999


def embed(server, inputs, **fields):
    status, answer = server.post("/v1/embeddings", {"model": "m", "input": inputs, **fields})
    assert status == 200, answer
    return [entry["embedding"] for entry in answer["data"]]


@pytest.mark.parametrize("method", ["last", "cls", "mean"])
def test_decoders_embed(method):
    cases = json.loads((QWEN3 / "pooling.json").read_text())
    pooler = json.dumps({"pooling_type": method.upper()})
    with serving(QWEN3, "--runner", "pooling", "--pooler-config", pooler, *COMMON, *CHUNKS) as server:
        together = embed(server, [case["ids"] for case in cases])
        for case, vector in zip(cases, together):
            assert_near(vector, normalized(case[method]))
        # The vectors have the same bits alone, with concurrent requests, and with a cached prefix.
        for case, vector in zip(cases, together):
            assert embed(server, case["ids"]) == [vector]
        again = at_once([lambda ids=case["ids"]: embed(server, ids)[0] for case in cases * 2])
        assert again == together * 2
        if method == "last":
            assert server.metric("vllm:prefix_cache_hits_total") > 0


@pytest.mark.parametrize("method", ["last", "mean"])
def test_ranks_embed_the_same(method):
    cases = json.loads((QWEN3 / "pooling.json").read_text())
    flags = [QWEN3, "--runner", "pooling", "--pooler-config", json.dumps({"pooling_type": method.upper()}), *COMMON, *CHUNKS]
    with serving(*flags) as server:
        expected = embed(server, [case["ids"] for case in cases])
    for ranks in (["-tp", 3], ["-tp", 2, "-pp", 2]):
        with serving(*flags, *ranks, "--tensor-parallel-mode", "exact") as server:
            assert embed(server, [case["ids"] for case in cases]) == expected


@pytest.mark.parametrize("method", ["last", "cls", "mean"])
def test_an_emulated_device_embeds_nearly_the_same(method):
    cases = json.loads((QWEN3 / "pooling.json").read_text())
    flags = ["--runner", "pooling", "--pooler-config", json.dumps({"pooling_type": method.upper()}), "--max-model-len", 256, "--max-num-seqs", 8, *CHUNKS]
    for ranks in ([], ["-tp", 2]):
        with serving(QWEN3, "--device", "emulated", *flags, *ranks) as server:
            together = embed(server, [case["ids"] for case in cases])
            for case, vector in zip(cases, together):
                assert cosine(vector, case[method]) > 0.999
            assert embed(server, cases[0]["ids"]) == [together[0]]


def test_an_emulated_device_scores_nearly_the_same():
    cases = json.loads((QWEN3 / "pooling.json").read_text())
    vocabulary = {i: t for t, i in json.loads((QWEN3 / "tokenizer.json").read_text())["model"]["vocab"].items()}
    overrides = {"architectures": ["Qwen3ForSequenceClassification"], "classifier_from_token": [vocabulary[10], vocabulary[20]],
                 "is_original_qwen3_reranker": True}
    with serving(QWEN3, "--device", "emulated", "--hf-overrides", json.dumps(overrides), "--max-model-len", 256, "--max-num-seqs", 8) as server:
        for case in cases:
            no, yes = case["no_yes"]
            status, answer = server.post("/classify", {"input": case["ids"]})
            assert status == 200, answer
            assert abs(answer["data"][0]["probs"][0] - 1 / (1 + math.exp(no - yes))) < 0.02


@pytest.mark.parametrize("name, method, flags", [
    ("tiny-bert", "embedding", []), ("tiny-nomic", "embedding", ["--pooler-config", '{"pooling_type": "MEAN"}', "--async-scheduling"]),
    ("tiny-modernbert", "mean", ["--pooler-config", '{"pooling_type": "MEAN"}', "--kv-cache-dtype", "fp8"])])
def test_an_emulated_device_embeds_texts_with_encoders(name, method, flags):
    cases = json.loads((CHECKPOINTS / name / "texts.json").read_text())
    with serving(CHECKPOINTS / name, "--device", "emulated", "--max-num-batched-tokens", 128, *flags) as server:
        together = embed(server, [case["text"] for case in cases])
        for case, vector in zip(cases, together):
            assert cosine(vector, case[method]) > (0.999 if "fp8" not in flags else 0.995)
        assert embed(server, cases[0]["ids"]) == [together[0]]
        assert "of 4096.0 MiB on emulated" in server.log()


@pytest.mark.parametrize("name, logit", [("tiny-bert-score", "logit"), ("tiny-modernbert-score", "mean")])
def test_an_emulated_device_scores_pairs_with_encoders(name, logit):
    """Token types on the device, and the mean of all rows, which the host computes."""
    cases = [case for case in json.loads((CHECKPOINTS / name / "texts.json").read_text()) if not case.get("truncate")]
    with serving(CHECKPOINTS / name, "--device", "emulated", "--max-num-batched-tokens", 128) as server:
        first, second = zip(*[case["pair"] for case in cases])
        status, together = server.post("/score", {"text_1": list(first), "text_2": list(second)})
        assert status == 200, together
        for case, entry in zip(cases, together["data"]):
            assert abs(entry["score"] - 1 / (1 + math.exp(-case[logit]))) < 0.02
        status, alone = server.post("/score", {"text_1": first[0], "text_2": second[0]})
        assert alone["data"][0]["score"] == together["data"][0]["score"]


def test_an_encoder_has_one_rank():
    with serving(CHECKPOINTS / "tiny-bert", "-tp", 2) as server:
        assert " WARN engine an encoder has only one rank" in server.log()
    done = run("serve", str(CHECKPOINTS / "tiny-bert"), "-tp", "2", "--tensor-parallel-mode", "exact")
    assert done.returncode != 0 and "an encoder has only one rank" in done.stdout + done.stderr


def test_the_default_type_stays_near():
    cases = json.loads((QWEN3 / "pooling.json").read_text())
    with serving(QWEN3, "--convert", "embed", "--max-model-len", 256, "--max-num-seqs", 8) as server:
        for case in cases:
            assert cosine(embed(server, case["ids"])[0], case["last"]) > 0.999


def test_a_reranker_from_two_tokens():
    cases = json.loads((QWEN3 / "pooling.json").read_text())
    vocabulary = {i: t for t, i in json.loads((QWEN3 / "tokenizer.json").read_text())["model"]["vocab"].items()}
    overrides = {"architectures": ["Qwen3ForSequenceClassification"], "classifier_from_token": [vocabulary[10], vocabulary[20]],
                 "is_original_qwen3_reranker": True}
    with serving(QWEN3, "--hf-overrides", json.dumps(overrides), *COMMON) as server:
        for case in cases:
            no, yes = case["no_yes"]
            status, answer = server.post("/classify", {"input": case["ids"]})
            assert status == 200, answer
            assert abs(answer["data"][0]["probs"][0] - 1 / (1 + math.exp(no - yes))) < 1e-4
        status, answer = server.post("/rerank", {"query": "beads", "documents": ["the abacus", "a wire", "beads"], "top_n": 2})
        assert status == 200 and len(answer["results"]) == 2
        assert answer["results"][0]["relevance_score"] >= answer["results"][1]["relevance_score"]


def test_the_template_of_a_reranker_gets_an_instruction(tmp_path):
    template = tmp_path / "template.jinja"
    template.write_text("{{ instruction | default('plain') }} {{ messages[0].content }} {{ messages[1].content }}")
    overrides = {"architectures": ["Qwen3ForSequenceClassification"], "classifier_from_token": ["a", "b"], "is_original_qwen3_reranker": True}
    with serving(QWEN3, "--hf-overrides", json.dumps(overrides), "--chat-template", template, *COMMON) as server:
        pair = {"text_1": "x", "text_2": "y"}
        def tokens_of(prompt):
            return server.post("/tokenize", {"prompt": prompt})[1]["tokens"]
        def expected(prompt):
            return server.post("/classify", {"input": tokens_of(prompt)})[1]["data"][0]["probs"]
        assert scores(server, **pair) == pytest.approx(expected("plain x y"), abs=1e-6)
        assert scores(server, **pair, instruction="find it") == pytest.approx(expected("find it x y"), abs=1e-6)
        assert scores(server, **pair, instruction="no", chat_template_kwargs={"instruction": "yes"}) == pytest.approx(expected("yes x y"), abs=1e-6)


def test_folders_of_sentence_transformers():
    folder = CHECKPOINTS / "tiny-bert"
    cases = json.loads((folder / "texts.json").read_text())
    with serving(folder, "--dtype", "float32") as server:
        together = embed(server, [case["text"] for case in cases])
        for case, vector in zip(cases, together):
            assert_near(vector, case["embedding"])
            assert embed(server, case["text"]) == [vector]
            assert embed(server, case["ids"]) == [vector]
        # Text that is too long is truncated by default, as in sentence-transformers; token ids are not.
        assert embed(server, "a " * 100) == embed(server, "a " * 62)
        status, answer = server.post("/v2/embed", {"texts": ["a " * 100], "truncate": "NONE"})
        assert status == 400 and "64 tokens" in answer["error"]["message"]
        status, answer = server.post("/v1/embeddings", {"input": [5] * 100})
        assert status == 400 and "64 tokens" in answer["error"]["message"]
        # Truncation keeps the special tokens.
        cut = embed(server, "a " * 100, truncate_prompt_tokens=10)
        assert cut == embed(server, "a " * 8)
        status, answer = server.post("/v1/completions", {"prompt": "a"})
        assert status == 400 and "/v1/embeddings" in answer["error"]["message"]
        status, answer = server.post("/score", {"text_1": "hello", "text_2": ["hello", "beads"]})
        assert status == 200 and abs(answer["data"][0]["score"] - 1) < 1e-6 > answer["data"][1]["score"] - 1


def test_the_limit_of_a_tokenizer_counts_where_no_other_is_given(tmp_path):
    """The tokenizer's limit in the format of sentence-transformers 6."""
    folder = shutil.copytree(CHECKPOINTS / "tiny-bert", tmp_path / "model")
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "model_max_length": 20}))
    with serving(folder, "--dtype", "float32") as server:
        assert embed(server, "a " * 100) == embed(server, "a " * 18) != embed(server, "a " * 17)
        status, answer = server.post("/score", {"text_1": "a " * 18, "text_2": "a " * 100})
        assert status == 200 and abs(answer["data"][0]["score"] - 1) < 1e-6


def dense_folder(path):
    """tiny-bert with the Dense modules of tiny-bert-dense."""
    folder = shutil.copytree(CHECKPOINTS / "tiny-bert", path / "model")
    return shutil.copytree(CHECKPOINTS / "tiny-bert-dense", folder, dirs_exist_ok=True)


def test_dense_modules_of_sentence_transformers(tmp_path):
    folder = dense_folder(tmp_path)
    cases = json.loads((folder / "texts.json").read_text())
    with serving(folder, "--dtype", "float32", "--hf-overrides", '{"is_matryoshka": true}') as server:
        together = embed(server, [case["text"] for case in cases])
        for case, vector in zip(cases, together):
            assert_near(vector, case["embedding"])
            assert embed(server, case["text"]) == [vector]
        # The limit of `dimensions` is the width of the last module's outputs (24), not the hidden size.
        assert_near(embed(server, cases[0]["text"], dimensions=16)[0], normalized(cases[0]["embedding"][:16]))
        status, answer = server.post("/v1/embeddings", {"input": "a", "dimensions": 25})
        assert status == 400 and "from 1 to 24" in answer["error"]["message"]
        status, answer = server.post("/v2/embed", {"texts": ["a"], "embedding_types": ["binary"]})
        assert status == 200 and len(answer["embeddings"]["binary"][0]) == 3
    with serving(folder, "--dtype", "float32", "--data-parallel-size", 2) as server:
        assert embed(server, [case["text"] for case in cases]) == together
    with serving(folder, "--device", "emulated", "--max-num-batched-tokens", 128) as server:
        for case, vector in zip(cases, embed(server, [case["text"] for case in cases])):
            assert cosine(vector, case["embedding"]) > 0.999


def test_a_dense_module_behind_a_decoder(tmp_path):
    folder = shutil.copytree(QWEN3, tmp_path / "model")
    cases = json.loads((folder / "pooling.json").read_text())
    weight = [[((7 * n + 3 * k) % 11 - 5) / 64 for k in range(128)] for n in range(8)]
    data = struct.pack("<1024f", *sum(weight, []))
    header = json.dumps({"linear.weight": {"dtype": "F32", "shape": [8, 128], "data_offsets": [0, len(data)]}}).encode()
    (folder / "1_Pooling").mkdir()
    (folder / "2_Dense").mkdir()
    (folder / "modules.json").write_text(json.dumps([{"path": path, "type": "sentence_transformers.models." + kind} for path, kind in
                                                     (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"))]))
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "lasttoken"}')
    (folder / "2_Dense" / "config.json").write_text(json.dumps({"in_features": 128, "out_features": 8, "bias": False,
                                                               "activation_function": "torch.nn.modules.activation.Sigmoid"}))
    (folder / "2_Dense" / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    def expected(case):
        return [1 / (1 + math.exp(-sum(w * x for w, x in zip(row, case["last"])))) for row in weight]
    for ranks in ([], ["-tp", 2]):
        with serving(folder, *COMMON, *CHUNKS, *ranks) as server:
            for case, vector in zip(cases, embed(server, [case["ids"] for case in cases])):
                assert max(abs(x - y) for x, y in zip(vector, expected(case), strict=True)) < 1e-4


def test_dense_modules_that_do_not_fit_are_refused(tmp_path):
    folder = dense_folder(tmp_path)
    for change, words in (({"in_features": 32}, "in_features: expected 64, the size of the model's hidden states, found 32"),
                          ({"out_features": 80}, "3_Dense/config.json: in_features: expected 80, the out_features of 2_Dense, found 96"),
                          ({"bias": False}, "tensor 'linear.bias': expected none"),
                          ({"activation_function": "torch.nn.modules.activation.Mish"}, "Mish' is not supported; supported are torch.nn.modules.linear.Identity")):
        config = json.loads((CHECKPOINTS / "tiny-bert-dense" / "2_Dense" / "config.json").read_text())
        (folder / "2_Dense" / "config.json").write_text(json.dumps({**config, **change}))
        result = run("serve", folder, "--port", 0)
        assert result.returncode != 0 and words in result.stderr + result.stdout


def test_classes():
    folder = CHECKPOINTS / "tiny-bert-classes"
    with serving(folder, "--dtype", "float32") as server:
        for case in json.loads((folder / "texts.json").read_text()):
            status, answer = server.post("/classify", {"input": case["text"], "use_activation": False})
            assert status == 200, answer
            assert_near(answer["data"][0]["probs"], case["logits"])
            best = max(range(3), key=lambda i: case["logits"][i])
            assert answer["data"][0]["label"] == ["no", "yes", "maybe"][best]
        status, answer = server.post("/classify", {"input": "hello"})
        assert abs(sum(answer["data"][0]["probs"]) - 1) < 1e-6


def test_an_encoder_with_rotary_positions():
    folder = CHECKPOINTS / "tiny-nomic"
    cases = json.loads((folder / "texts.json").read_text())
    with serving(folder, "--dtype", "float32", "--pooler-config", '{"pooling_type": "MEAN"}') as server:
        together = embed(server, [case["text"] for case in cases])
        for case, vector in zip(cases, together):
            assert_near(vector, case["embedding"])
            assert embed(server, case["ids"]) == [vector]
        status, answer = server.post("/v1/embeddings", {"input": "a " * 100})
        assert status == 400 and "96 tokens" in answer["error"]["message"]


@pytest.mark.parametrize("kind", ["cls", "mean"])
def test_an_encoder_with_windows_to_either_side(kind):
    folder = CHECKPOINTS / "tiny-modernbert"
    cases = json.loads((folder / "texts.json").read_text())
    with serving(folder, "--dtype", "float32", "--pooler-config", json.dumps({"pooling_type": kind.upper()})) as server:
        together = embed(server, [case["text"] for case in cases])
        for case, vector in zip(cases, together):
            assert_near(vector, case[kind])
            assert embed(server, case["ids"]) == [vector]


def test_an_encoder_whose_file_has_no_head(tmp_path):
    """A checkpoint saved from ModernBertModel, with tensor names without "model."."""
    folder = shutil.copytree(CHECKPOINTS / "tiny-modernbert", tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["ModernBertModel"]}))
    content = (folder / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + size])
    bare = json.dumps({name.removeprefix("model."): entry for name, entry in header.items()}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(bare)) + bare + content[8 + size:])
    cases = json.loads((folder / "texts.json").read_text())
    with serving(folder, "--dtype", "float32") as server:
        for case in cases:
            assert_near(embed(server, case["text"])[0], case["cls"])


@pytest.mark.parametrize("kind", ["cls", "mean"])
def test_a_classifier_of_an_encoder_with_windows(kind, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(CHECKPOINTS / "tiny-modernbert-score", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "classifier_pooling": kind}))
    cases = json.loads((folder / "texts.json").read_text())
    with serving(folder, "--dtype", "float32") as server:
        first, second = zip(*[case["pair"] for case in cases])
        status, together = server.post("/score", {"text_1": list(first), "text_2": list(second)})
        assert status == 200, together
        for case, entry in zip(cases, together["data"]):
            assert abs(entry["score"] - 1 / (1 + math.exp(-case[kind]))) < 1e-4
            status, alone = server.post("/score", {"text_1": case["pair"][0], "text_2": case["pair"][1]})
            assert alone["data"][0]["score"] == entry["score"]
            assert alone["usage"]["prompt_tokens"] == len(case["ids"])


def scores(server, **body):
    status, answer = server.post("/score", body)
    assert status == 200, answer
    return [entry["score"] for entry in answer["data"]]


@pytest.mark.parametrize("name", ["tiny-xlmr-score", "tiny-bert"])
def test_queries_and_documents_are_cut_each_for_itself(name):
    with serving(CHECKPOINTS / name, "--dtype", "float32") as server:
        whole = {"text_1": "beads on wires", "text_2": ["beads on wires", "wires"]}
        first = server.post("/tokenize", {"prompt": "beads on wires", "add_special_tokens": False})[1]["tokens"][:2]
        cut = server.post("/detokenize", {"tokens": first})[1]["prompt"]
        assert scores(server, **whole, max_tokens_per_doc=2) == scores(server, text_1="beads on wires", text_2=[cut, "wires"]) != scores(server, **whole)
        assert scores(server, **whole, max_tokens_per_query=2) == scores(server, text_1=cut, text_2=whole["text_2"])
        status, answer = server.post("/rerank", {"query": "a", "documents": ["beads on wires"], "max_tokens_per_doc": 2})
        assert (status, answer["results"][0]["document"]["text"]) == (200, "beads on wires")
        for field, value, says in (("max_tokens_per_doc", 4096, "max_model_len"), ("max_tokens_per_query", -1, "max_tokens_per_query"), ("top_n", -1, "top_n")):
            status, answer = server.post("/rerank", {"query": "a", "documents": ["b"], field: value})
            assert status == 400 and says in answer["error"]["message"]


@pytest.mark.parametrize("name", ["tiny-xlmr-score", "tiny-gte-score"])
def test_a_cross_encoder(name):
    folder = CHECKPOINTS / name
    cases = json.loads((folder / "texts.json").read_text())
    with serving(folder, "--dtype", "float32") as server:
        for case in cases:
            status, answer = server.post("/score", {"queries": case["pair"][0], "documents": case["pair"][1]})
            assert status == 200, answer
            assert abs(answer["data"][0]["score"] - 1 / (1 + math.exp(-case["logit"]))) < 1e-4
            assert answer["usage"]["prompt_tokens"] == len(case["ids"])


def test_a_cross_encoder_that_knows_its_texts_by_token_types():
    folder = CHECKPOINTS / "tiny-bert-score"
    cases = json.loads((folder / "texts.json").read_text())
    with serving(folder, "--dtype", "float32") as server:
        for case in cases:
            first, second = case["pair"]
            more = {"truncate_prompt_tokens": case["truncate"]} if case["truncate"] else {}
            status, answer = server.post("/score", {"text_1": first, "text_2": second, **more})
            assert status == 200, answer
            assert answer["usage"]["prompt_tokens"] == len(case["ids"])
            assert abs(answer["data"][0]["score"] - 1 / (1 + math.exp(-case["logit"]))) < 1e-4, case
        # Pairs have the same scores together in one step as alone.
        whole = [case for case in cases if not case["truncate"]]
        status, answer = server.post("/score", {"text_1": [case["pair"][0] for case in whole], "text_2": [case["pair"][1] for case in whole]})
        assert status == 200, answer
        for case, entry in zip(whole, answer["data"]):
            status, alone = server.post("/score", {"text_1": case["pair"][0], "text_2": case["pair"][1]})
            assert alone["data"][0]["score"] == entry["score"]
        status, answer = server.post("/rerank", {"query": "beads", "documents": ["the abacus", "a wire " * 60]})
        assert status == 400 and "96 tokens" in answer["error"]["message"]


def test_a_tokenizer_that_gives_no_types_gives_all_tokens_the_same(tmp_path):
    folder = shutil.copytree(CHECKPOINTS / "tiny-bert-score", tmp_path / "model")
    cases = [case for case in json.loads((folder / "texts.json").read_text()) if not case["truncate"]]
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "model_input_names": ["input_ids", "attention_mask"]}))
    moved = 0
    with serving(folder, "--dtype", "float32") as server:
        for case in cases:
            status, answer = server.post("/score", {"text_1": case["pair"][0], "text_2": case["pair"][1]})
            assert status == 200, answer
            alone = server.post("/classify", {"input": [case["ids"]]})[1]["data"][0]["probs"][0]
            assert abs(answer["data"][0]["score"] - alone) < 1e-6
            moved = max(moved, abs(alone - 1 / (1 + math.exp(-case["logit"]))))
    assert moved > 1e-3  # the token types of the second text matter


def test_embeddings_in_the_shape_of_cohere():
    with serving(CHECKPOINTS / "tiny-bert", "--dtype", "float32") as server:
        texts = ["hello world", "beads on wires"]
        plain = embed(server, texts)
        status, answer = server.post("/v2/embed", {"model": None, "texts": texts, "embedding_types": ["float", "base64", "binary", "ubinary"]})
        assert status == 200, answer
        assert answer["embeddings"]["float"] == plain and answer["texts"] == texts and answer["response_type"] == "embeddings_by_type"
        assert answer["meta"]["billed_units"] == {"input_tokens": sum(len(server.post("/tokenize", {"prompt": text})[1]["tokens"]) for text in texts),
                                                  "image_tokens": 0}
        for i, vector in enumerate(plain):
            assert list(struct.unpack("<64f", base64.b64decode(answer["embeddings"]["base64"][i]))) == pytest.approx(vector, abs=1e-7)
            bits = [int("".join("1" if x >= 0 else "0" for x in vector[k:k + 8]), 2) for k in range(0, 64, 8)]
            assert answer["embeddings"]["ubinary"][i] == bits and answer["embeddings"]["binary"][i] == [bit - 128 for bit in bits]
        # input_type selects the prompt that is prepended.
        status, answer = server.post("/v2/embed", {"texts": ["beads"], "input_type": "query"})
        assert status == 200 and answer["embeddings"] == {"float": [embed(server, "query: beads")[0]]}
        for body, says in (({"texts": ["a"], "input_type": "search"}, "Supported values: document, query"), ({"texts": []}, "non-empty"),
                           ({"images": ["data:,"]}, "only texts"), ({"texts": ["a b c"], "truncate": "NONE", "max_tokens": 3}, "exceeds max_tokens=3"),
                           ({"texts": ["a"], "embedding_types": ["int8"]}, "int8"), ({"texts": ["a"], "output_dimension": 4}, "matryoshka")):
            status, answer = server.post("/v2/embed", body)
            assert status == 400 and says in json.dumps(answer), answer
        start = server.post("/v2/embed", {"texts": ["a b c d e"], "truncate": "START", "max_tokens": 4})[1]
        last = server.post("/tokenize", {"prompt": "a b c d e"})[1]["tokens"][-4:]
        assert start["embeddings"]["float"] == embed(server, last) and start["meta"]["billed_units"]["input_tokens"] == 4


def test_the_prompt_of_a_purpose_is_put_into_lower_case_too(tmp_path):
    folder = shutil.copytree(CHECKPOINTS / "tiny-bert", tmp_path / "model")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["normalizer"]["lowercase"] = False  # so that only sentence_bert_config.json requests lower case
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "config_sentence_transformers.json").write_text('{"prompts": {"query": "Query: "}}')
    with serving(folder, "--dtype", "float32") as server:
        body = {"texts": ["Beads"], "input_type": "query", "embedding_types": ["float", "float"]}
        status, _, answer = server.request("POST", "/v2/embed", body)
        assert status == 200 and json.loads(answer)["embeddings"] == {"float": embed(server, "query: beads")}
        assert answer.count(b'"float":') == 1  # an embedding type that is requested twice appears only once


def test_the_openai_client():
    with serving(QWEN3, "--runner", "pooling", "--hf-overrides", '{"is_matryoshka": true}', *COMMON) as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        answer = client.embeddings.create(model="m", input=["beads", "wires"])  # The SDK requests base64.
        assert [entry.index for entry in answer.data] == [0, 1] and answer.usage.total_tokens > 1
        plain = client.embeddings.create(model="m", input="beads", encoding_format="float").data[0].embedding
        assert_near(answer.data[0].embedding, plain, 1e-7)
        short = client.embeddings.create(model="m", input="beads", dimensions=16, encoding_format="float").data[0].embedding
        assert_near(short, normalized(plain[:16]), 1e-6)
        raw = embed(server, "beads", encoding_format="base64")[0]
        assert list(struct.unpack("<128f", base64.b64decode(raw))) == pytest.approx(plain, abs=1e-7)


def test_run_batch(tmp_path):
    lines = [{"custom_id": str(i), "method": "POST", "url": "/v1/embeddings", "body": {"model": "m", "input": text}}
             for i, text in enumerate(["beads", "wires"])]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))
    result = run("run-batch", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--model", QWEN3, "--runner", "pooling",
                 "--served-model-name", "m", *COMMON)
    assert result.returncode == 0, result.stderr
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [len(a["response"]["body"]["data"][0]["embedding"]) for a in answers] == [128, 128]


@pytest.mark.parametrize("name, other_task", [("tiny-bert", "/classify"), ("tiny-bert-score", "/v1/embeddings")])
def test_run_batch_scores_and_ranks(name, other_task, tmp_path):
    """The lines of a batch file get the same answers as requests to a server, with an embedding model and with a model that scores
    pairs."""
    documents = ["the abacus", "a wire", "beads"]
    score, rank = {"text_1": "beads", "text_2": documents}, {"query": "beads", "documents": documents, "top_n": 2}
    asked = [(url, {"model": "m", **score}) for url in ("/score", "/v1/score")] + [(url, {"model": "m", **rank}) for url in ("/rerank", "/v1/rerank", "/v2/rerank")]
    asked += [(other_task, {"model": "m", "input": "beads"}), ("/v1/score", {"model": "m", "text_1": "beads", "text_2": []})]
    lines = [{"custom_id": "%d" % i, "method": "POST", "url": url, "body": body} for i, (url, body) in enumerate(asked)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    flags = ["--dtype", "float32", "--served-model-name", "m"]
    result = run("run-batch", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--model", CHECKPOINTS / name, *flags)
    assert result.returncode == 0, result.stderr
    assert "7 requests answered, 2 of them with an error" in result.stderr
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [a["custom_id"] for a in answers] == [line["custom_id"] for line in lines]
    with serving(CHECKPOINTS / name, *flags) as server:
        for (url, body), answer in zip(asked, answers):
            status, expected = server.post(url, body)
            assert answer["response"]["status_code"] == status
            if status != 200:
                assert answer["response"]["body"] is None and answer["error"] == expected
                continue
            got = answer["response"]["body"]
            assert answer["error"] is None and got.keys() == expected.keys()
            assert {k: v for k, v in got.items() if k not in ("id", "created")} == {k: v for k, v in expected.items() if k not in ("id", "created")}
            assert len(got["results"] if "rerank" in url else got["data"]) == (2 if "rerank" in url else 3)
    assert [a["response"]["status_code"] for a in answers] == [200] * 5 + [400] * 2


@pytest.mark.parametrize("flags, words", [
    (["--runner", "pooling", "--pooler-config", '{"pooling_type": "STEP"}'], "STEP"),
    (["--runner", "generate", "--convert", "embed"], "contradict"),
    (["--convert", "classify"], "score.weight"),
    (["--pooler-config", '{"pooling_type": "CLS"}'], "--runner pooling")])
def test_what_cannot_be_is_refused_at_start(flags, words):
    result = run("serve", QWEN3, "--port", 0, *flags)
    assert result.returncode != 0 and words in result.stderr + result.stdout


def test_a_server_that_generates_says_what_to_do():
    with serving(QWEN3, *COMMON) as server:
        for path, body in (("/v1/embeddings", {"input": "a"}), ("/score", {"text_1": "a", "text_2": "b"}),
                           ("/rerank", {"query": "a", "documents": ["b"]})):
            status, answer = server.post(path, body)
            assert status == 400 and "--runner pooling" in answer["error"]["message"]
