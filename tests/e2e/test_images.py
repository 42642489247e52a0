"""Images from a client to a model with a vision tower, and the answers."""
import base64
import json
import random
import shutil
import string
import struct
import zlib

import openai
import pytest
import survival
from test_chat_terminal import chatting

from serving import DATA, run, serving, wait_until

CHECKPOINT = DATA / "checkpoints" / "tiny-qwen3-vl"
ROWS = [json.loads(line) for line in (DATA / "vision" / "images.jsonl").read_text().splitlines()]
FILES = {row["name"]: base64.b64decode(row["base64"]) for row in ROWS}
TEMPLATE = ("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}{% if c.type == 'image' %}"
            "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}")
SPECIAL = {0: "<pad>", 1: "<s>", 2: "</s>", 100: "<|image_pad|>", 101: "<|vision_start|>", 102: "<|vision_end|>"}


def tokenizer():
    """One token per letter, within the model's 120 ids."""
    letters = [i for i in range(3, 100)]
    vocab = dict(zip(string.ascii_letters + string.digits + " .,?!'", letters))
    vocab.update({"<unused %d>" % i: i for i in letters if i not in vocab.values()})
    return {"version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
            "added_tokens": [{"id": id_, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                              "special": True} for id_, text in SPECIAL.items()],
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unused 99>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []}}


def write_eyes(folder, checkpoint=CHECKPOINT):
    """Writes a tiny model that accepts images."""
    for name in ("config.json", "model.safetensors"):
        shutil.copy(checkpoint / name, folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "bos_token": "<s>"}))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "preprocessor_config.json").write_text(json.dumps({
        "image_processor_type": "Qwen2VLImageProcessor", "patch_size": 4, "temporal_patch_size": 2, "merge_size": 2,
        "size": {"shortest_edge": 256, "longest_edge": 1024}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeing")
    write_eyes(folder)
    media = tmp_path_factory.mktemp("media")
    (media / "rgb.png").write_bytes(FILES["rgb.png"])
    with serving(folder, "--dtype", "float32", "--max-model-len", 512, "--allowed-local-media-path", media, "--limit-mm-per-prompt",
                 '{"image": 3}', name="eyes") as one:
        one.media, one.folder = media, folder
        yield one


def data_url(name):
    return "data:image/png;base64," + base64.b64encode(FILES[name]).decode()


def message(*urls, text="what is it?"):
    return [{"role": "user", "content": [*({"type": "image_url", "image_url": {"url": url}} for url in urls), {"type": "text", "text": text}]}]


def body(*urls, **fields):
    return {"model": "eyes", "messages": message(*urls), "max_tokens": 6, "temperature": 0, "ignore_eos": True, "logprobs": True,
            "top_logprobs": 3, **fields}


def ask(server, *urls, **fields):
    status, answer = server.post("/v1/chat/completions", body(*urls, **fields))
    assert status == 200, answer
    return answer


def test_the_answer_depends_on_the_image(server):
    one, other = ask(server, data_url("rgb.png")), ask(server, data_url("progressive.jpg"))
    assert one["choices"][0]["logprobs"] != other["choices"][0]["logprobs"]
    again = ask(server, data_url("rgb.png"))
    assert again["choices"][0]["logprobs"] == one["choices"][0]["logprobs"]
    assert ask(server, "file://%s/rgb.png" % server.media)["choices"][0]["logprobs"] == one["choices"][0]["logprobs"]
    status, tokens = server.post("/tokenize", {"model": "eyes", "messages": message(data_url("rgb.png"))})
    assert status == 200 and tokens["count"] == one["usage"]["prompt_tokens"]
    assert tokens["tokens"].count(100) > 4


def test_the_same_in_every_api(server):
    chat = ask(server, data_url("rgb.png"))["choices"][0]["message"]["content"]
    status, answer = server.post("/v1/messages", {
        "model": "eyes", "max_tokens": 6, "temperature": 0, "messages": [{"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(FILES["rgb.png"]).decode()}},
            {"type": "text", "text": "what is it?"}]}]})
    assert status == 200, answer
    assert chat.startswith(answer["content"][0]["text"])
    status, answer = server.post("/v1/responses", {
        "model": "eyes", "max_output_tokens": 6, "temperature": 0, "input": [{"role": "user", "content": [
            {"type": "input_image", "image_url": data_url("rgb.png")}, {"type": "input_text", "text": "what is it?"}]}]})
    assert status == 200, answer
    assert chat.startswith(answer["output"][0]["content"][0]["text"])


def test_the_openai_client_streams(server):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="EMPTY", max_retries=0)
    fields = {"model": "eyes", "max_tokens": 6, "temperature": 0, "extra_body": {"ignore_eos": True}}
    stream = client.chat.completions.create(messages=message(data_url("lossy.webp"), data_url("plain.gif")), stream=True, **fields)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    whole = client.chat.completions.create(messages=message(data_url("lossy.webp"), data_url("plain.gif")), **fields)
    assert whole.choices[0].message.content == text
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(messages=message(data_url("cut.jpg")), **fields)
    assert refused.value.param == "messages[0].content[0].image_url"


def test_refusals(server):
    for urls, words in (([data_url("rgb.png")] * 4, "At most 3 image(s)"), (["http://example.org/a.png"], "--allowed-media-domains"),
                        (["file:///etc/passwd"], "--allowed-local-media-path"), ([data_url("bomb.png")], "60000 x 60000 pixels"),
                        ([data_url("text.png")], "expected a PNG, JPEG, WebP, GIF or BMP image")):
        status, answer = server.post("/v1/chat/completions", body(*urls))
        assert status == 400 and words in answer["error"]["message"], answer
    # An allowed size that needs more memory than one request may use.
    head = b"IHDR" + struct.pack(">IIBBBBB", 13000, 13000, 8, 2, 0, 0, 0)
    large = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))
    status, answer = server.post("/v1/chat/completions", body("data:image/png;base64," + base64.b64encode(large).decode()))
    place = "messages[0].content[0].image_url"
    assert status == 413 and answer["error"]["param"] == place, answer
    assert answer["error"]["message"].startswith(place + ": the image has 13000 x 13000 pixels. The request needs "), answer
    # The server still answers.
    assert ask(server, data_url("rgb.png"))["usage"]["completion_tokens"] == 6


def damaged(count):
    """Image files with bytes changed, removed, repeated or cut off."""
    numbers = random.Random(5)
    originals = [row for row in ROWS if 20 < len(FILES[row["name"]]) < 20000 and "bomb" not in row["name"]]
    for index in range(count):
        data = bytearray(FILES[originals[index % len(originals)]["name"]])
        for _ in range(numbers.randint(1, 5)):
            at = numbers.randrange(len(data))
            kind = numbers.randrange(4)
            if kind == 0:
                del data[at:at + numbers.randint(1, 40)]
            elif kind == 1:
                data[at:at] = data[at:at + numbers.randint(1, 40)]
            elif kind == 2:
                data[at] = numbers.randrange(256)
            else:
                del data[max(12, at):]
            if len(data) < 13:
                break
        yield bytes(data)


def send_damaged(server, count):
    """Returns how many were answered; the others are 400, or 413 if their header claims too many pixels."""
    before = ask(server, data_url("rgb.png"))["choices"][0]["logprobs"]
    resident = survival.resident_bytes(server.process.pid)
    answered = 0
    for data in damaged(count):
        url = "data:image/png;base64," + base64.b64encode(data).decode()
        status, answer = server.post("/tokenize", {"model": "eyes", "messages": message(url)})
        assert status in (200, 400, 413), answer
        answered += status == 200
        assert status == 200 or "messages[0].content[0].image_url" in answer["error"]["message"], answer
    assert server.process.poll() is None
    assert ask(server, data_url("rgb.png"))["choices"][0]["logprobs"] == before
    # Decoded images are cached, up to --mm-processor-cache-gb.
    wait_until(lambda: survival.resident_bytes(server.process.pid) < resident + (96 << 20), lambda: "memory grew", 30)
    return answered


def test_damaged_images_are_answered_or_refused(server):
    answered = send_damaged(server, 300)
    assert 10 < answered < 290


@pytest.mark.slow
def test_ten_thousand_damaged_images(server):
    answered = send_damaged(server, 10000)
    assert 500 < answered < 9500


def test_chat_takes_a_path(server, tmp_path):
    (tmp_path / "photo.png").write_bytes(FILES["rgb.png"])
    (tmp_path / "text.png").write_text("no image")
    with chatting(server, tmp_path) as terminal:
        assert "PNG image of" in terminal.line("/image photo.png")
        terminal.line("what is it?")
        assert "expected a PNG" in terminal.line("/image text.png")
        assert "saved" in terminal.line("/save talk.json")
        terminal.leave()
    talk = json.loads((tmp_path / "talk.json").read_text())["messages"]
    sent = json.dumps(talk[0])
    assert base64.b64encode(FILES["rgb.png"]).decode() in sent


def test_bench_sends_random_images(server, tmp_path):
    sizes = ["--dataset-name", "random-mm", "--random-input-len", 8, "--random-output-len", 4, "--num-prompts", 6, "--max-concurrency", 2,
             "--random-mm-base-items-per-request", 2, "--random-mm-bucket-config", "{(16, 24, 1): 0.5, (40, 20, 1): 0.5}"]
    call = ["bench", "serve", "--base-url", server.url, "--model", "eyes", "--tokenizer", server.folder, *sizes]
    done = run(*call, "--backend", "openai-chat", "--save-result", "--result-dir", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(next(tmp_path.glob("*.json")).read_text())
    assert result["completed"] == 6 and result["failed"] == 0
    assert result["total_input_tokens"] >= 6 * 8 + 12 * 6  # an image takes at least 6 tokens
    refused = run(*call, "--backend", "openai")
    assert refused.returncode == 2 and "--backend openai-chat" in refused.stderr + refused.stdout
