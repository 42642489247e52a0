"""Answers of tiny models about images, from image files to log probabilities, compared with transformers: tests/data/vision/answers.json
(tools/vision/make_answers.py)."""
import base64
import json
import shutil
import string

import pytest

from serving import DATA, serving

ANSWERS = json.loads((DATA / "vision" / "answers.json").read_text())
ROWS = [json.loads(line) for line in (DATA / "vision" / "images.jsonl").read_text().splitlines()]
FILES = {row["name"]: row["base64"] for row in ROWS}
TEMPLATE = ("{%% for m in messages %%}{%% if m.content is string %%}{{ m.content }}{%% else %%}{%% for c in m.content %%}{%% if c.type == 'image' %%}"
            "%s{%% else %%}{{ c.text }}{%% endif %%}{%% endfor %%}{%% endif %%}{%% endfor %%}")


def tokenizer(special):
    letters = range(3, 100)
    vocab = dict(zip("\n" + string.ascii_letters + string.digits + " .,?!'", letters))
    vocab.update({"<unused %d>" % i: i for i in letters if i not in vocab.values()})
    return {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
            "added_tokens": [{"id": int(id_), "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                              "special": True} for id_, text in special.items()],
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unused 99>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []}}


def write_model(folder, name):
    family = ANSWERS[name]
    for file in ("config.json", "model.safetensors"):
        shutil.copy(DATA / "checkpoints" / name / file, folder)
    for file, content in (("tokenizer.json", tokenizer(family["special"])), ("tokenizer_config.json", {"eos_token": "</s>", "bos_token": "<s>"}),
                          ("preprocessor_config.json", family["preprocessor_config"]), ("processor_config.json", family["processor_config"])):
        (folder / file).write_text(json.dumps(content))
    (folder / "chat_template.jinja").write_text(TEMPLATE % family["shown"])


def body(images):
    parts = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + image}} for image in images]
    return {"model": "eyes", "messages": [{"role": "user", "content": [*parts, {"type": "text", "text": "what is it?"}]}]}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_as_transformers(name, tmp_path):
    write_model(tmp_path, name)
    with serving(tmp_path, "--dtype", "float32", "--max-model-len", 512, name="eyes") as server:
        for case in ANSWERS[name]["cases"]:
            ask = body([FILES[image] for image in case["images"]])
            status, tokens = server.post("/tokenize", {**ask, "add_special_tokens": False})
            assert status == 200 and tokens["tokens"] == case["prompt"], (case["images"], tokens)
            status, answer = server.post("/v1/chat/completions", {**ask, "max_tokens": 1, "temperature": 0, "ignore_eos": True, "logprobs": True,
                                                                  "top_logprobs": 8, "return_tokens_as_token_ids": True})
            assert status == 200, answer
            assert answer["usage"]["prompt_tokens"] == len(case["prompt"])
            found = {int(entry["token"].split(":")[1]): entry["logprob"] for entry in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]}
            for token, logprob in case["top"]:
                assert abs(found.get(token, -1e9) - logprob) < 1e-4, (case["images"], token, found)
        status, answer = server.post("/v1/chat/completions", body([base64.b64encode(b"no image").decode()]))
        assert status == 400 and "expected a PNG, JPEG, WebP, GIF or BMP image" in answer["error"]["message"]
