"""The model of recipe 004, Llama 4 Scout in FP4 and FP8, is launched as the recipe says and answers about images."""
import base64
import json
import math
import shutil
import struct

import pytest
from recipe_place import block_at, place
from test_images import FILES

from serving import DATA

CHECKPOINTS = DATA / "checkpoints"
# The first three ids are in config.json.
IMAGE_TOKENS = {492: "<|image_start|>", 493: "<|image_end|>", 494: "<|patch|>", 495: "<|image|>", 496: "<|tile_x_separator|>",
                497: "<|tile_y_separator|>"}
PATCH = 494
TEMPLATE = ("{{ bos_token }}{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
            "{% if c.type == 'image' %}<|image|>{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}<|eot_id|>{% endfor %}")


def narrow_tower(folder):
    """Halves the tower's width. In Llama 4, pixel shuffle joins values to four times the tower's width, and the
    intermediate size must be equal to that. In the checkpoint it is only two times the width, with which transformers also fails. Each
    tensor keeps its first numbers."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors, body, end = json.loads(data[8:8 + size]), [], 0
    for name, tensor in tensors.items():
        if name == "__metadata__":
            continue
        begin, stop = tensor["data_offsets"]
        if name.startswith("vision_model."):
            tensor["shape"] = [16 if side == 32 else side for side in tensor["shape"]]
            stop = begin + 2 * math.prod(tensor["shape"])
        body.append(data[8 + size + begin:8 + size + stop])
        tensor["data_offsets"] = [end, end := end + stop - begin]
    header = json.dumps(tensors).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"".join(body))
    config = json.loads((folder / "config.json").read_text())
    assert config["vision_config"]["hidden_size"] == 32 and config["vision_config"]["intermediate_size"] == 64
    config["vision_config"]["hidden_size"] = 16
    (folder / "config.json").write_text(json.dumps(config))


def write_scout(folder, checkpoint):
    """A checkpoint in the recipe's format with the files of its image processor, and the tokens of images in its vocabulary."""
    shutil.copytree(checkpoint, folder)
    narrow_tower(folder)
    source = CHECKPOINTS / "llama-bf16"
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    model = tokenizer["model"]
    removed = {text for text, id_ in model["vocab"].items() if id_ in IMAGE_TOKENS}
    model["vocab"] = {IMAGE_TOKENS.get(id_, text): id_ for text, id_ in model["vocab"].items()}
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    model["merges"] = [pair for pair in pairs if "".join(pair) not in removed and removed.isdisjoint(pair)]
    tokenizer["added_tokens"] = [*({"id": id_, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                                    "special": True} for id_, text in IMAGE_TOKENS.items()), *tokenizer["added_tokens"]]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(source / name, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "preprocessor_config.json").write_text(json.dumps({
        "image_processor_type": "Llama4ImageProcessor", "size": {"height": 28, "width": 28}, "max_patches": 16, "resample": 2,
        "image_mean": [0.5] * 3, "image_std": [0.5] * 3}))
    (folder / "processor_config.json").write_text(json.dumps({"patch_size": 14, "pixel_shuffle_ratio": 0.5}))


def request(model, *names):
    images = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(FILES[name]).decode()}} for name in names]
    return {"model": model, "messages": [{"role": "user", "content": [*images, {"type": "text", "text": "What is it?"}]}],
            "max_tokens": 8, "temperature": 0, "logprobs": True, "top_logprobs": 2, "ignore_eos": True, "return_token_ids": True}


@pytest.mark.parametrize("capability, model, checkpoint", [
    ("10.0", "nvidia/Llama-4-Scout-Instruct-FP4", "llama4-modelopt-nvfp4"),
    ("9.0", "nvidia/Llama-4-Scout-Instruct-FP8", "llama4-quark-fp8"),
])
def test_scout_answers_about_images(tmp_path, capability, model, checkpoint):
    folder = tmp_path / "scout"
    write_scout(folder, CHECKPOINTS / checkpoint)
    (tmp_path / "place").mkdir()
    with place(tmp_path / "place", {model: folder}, capability) as p:
        for name, line in (("Llama4_Blackwell.yaml", 69), ("Llama4_Hopper.yaml", 79)):
            (p.folder / name).write_text(block_at(4, line).text)

        def ask(*names):
            (p.folder / "request.json").write_text(json.dumps(request(model, *names)))
            return json.loads(p.run("curl -s http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' -d @request.json"))

        with p.launched(block_at(4, 92).text, "http://127.0.0.1:8000"):
            alone, one, other, two = ask(), ask("rgb.png"), ask("gray.jpg"), ask("rgb.png", "gray.jpg")
            for answer in (alone, one, other, two):
                assert answer.get("usage", {}).get("completion_tokens") == 8, answer
            # The images have 23 x 17 and 33 x 21 pixels, and each tile of 28 x 28 pixels is one token.
            assert [answer["prompt_token_ids"].count(PATCH) for answer in (alone, one, other, two)] == [0, 1, 3, 4]
            assert one["usage"]["prompt_tokens"] == alone["usage"]["prompt_tokens"] + 4
            logprobs = [answer["choices"][0]["logprobs"]["content"] for answer in (alone, one, other, two)]
            assert all(logprobs[i] != logprobs[j] for i in range(4) for j in range(i))
            assert ask("rgb.png")["choices"][0]["logprobs"]["content"] == logprobs[1]
        assert "images are" not in p.log.read_text()
