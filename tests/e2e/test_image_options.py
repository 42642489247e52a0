"""The options for images, other fields in requests with images, and data sets with images."""
import contextlib
import http.server
import json
import re
import threading

import pytest
from test_images import FILES, ask, body, data_url, message, write_eyes

from serving import run, serving

FLAGS = ("--dtype", "float32", "--max-model-len", 512)


@pytest.fixture(scope="module")
def eyes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eyes")
    write_eyes(folder)
    return folder


@pytest.fixture(scope="module")
def server(eyes):
    with serving(eyes, *FLAGS, "--dev-mode", name="eyes") as one:
        yield one


@contextlib.contextmanager
def image_host():
    """A web server on the loopback interface: /PATH is the image of that name, /to/PATH a redirect to it. Yields its address and its requests."""
    requests = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append((self.path, dict(self.headers)))
            name = self.path.lstrip("/")
            if name.startswith("to/"):
                self.send_response(302)
                self.send_header("Location", "/" + name.removeprefix("to/"))
                self.end_headers()
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(FILES[name])))
            self.end_headers()
            self.wfile.write(FILES[name])

        def log_message(self, *words):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        thread = threading.Thread(target=web.serve_forever)
        thread.start()
        try:
            yield "http://127.0.0.1:%d" % web.server_port, requests
        finally:
            web.shutdown()
            thread.join()


def refusal(server, *urls):
    status, answer = server.post("/v1/chat/completions", body(*urls))
    assert status == 400 and answer["error"]["param"] == "messages[0].content[0].image_url", answer
    return answer["error"]["message"]


def logprobs(answer):
    return answer["choices"][0]["logprobs"]


def test_images_by_url(eyes, server):
    flags = ("--allowed-media-domains", "127.0.0.1", "--max-image-pixels", 700)
    with image_host() as (address, requests):
        with serving(eyes, *FLAGS, *flags, name="eyes") as one:
            found = ask(one, address + "/rgb.png", address + "/to/gray.jpg")
            assert logprobs(found) == logprobs(ask(server, data_url("rgb.png"), data_url("gray.jpg")))
            assert sorted(path for path, _ in requests) == ["/gray.jpg", "/rgb.png", "/to/gray.jpg"]
            assert all("Authorization" not in headers and "Cookie" not in headers for _, headers in requests)
            assert "allowed domains: 127.0.0.1" in refusal(one, "http://localhost/rgb.png")
            assert "name or password" in refusal(one, address.replace("http://", "http://a:b@") + "/rgb.png")
            assert "37 x 23 pixels; at most 700 pixels are decoded" in refusal(one, address + "/lossy.webp")
        del requests[:]
        with serving(eyes, *FLAGS, *flags, name="eyes", env={"VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0"}) as one:
            assert "--no-allow-media-redirects" in refusal(one, address + "/to/rgb.png")
            assert [path for path, _ in requests] == ["/to/rgb.png"]
            assert not any("VLLM_MEDIA" in line and "effect" in line for line in one.log().splitlines())
        # Under the name vllm, every host with a public address is allowed.
        with serving(eyes, *FLAGS, program="vllm", name="eyes") as one:
            assert "not public" in refusal(one, address + "/rgb.png")
        assert "--allowed-media-domains" in refusal(server, address + "/rgb.png")


@pytest.mark.parametrize("flags, words", [
    (["--language-model-only"], "eyes is not a multimodal model: the server was started with --language-model-only"),
    (["--limit-mm-per-prompt", '{"image": 0}'], "At most 0 image(s) may be provided in one prompt"),
])
def test_text_alone(eyes, flags, words):
    with serving(eyes, *FLAGS, *flags, name="eyes") as one:
        assert words in refusal(one, data_url("rgb.png"))
        assert ask(one)["usage"]["completion_tokens"] == 6
        # The log does not mention the vision tower, so it was not loaded.
        assert "rows of images" not in one.log()


def test_settings_of_the_processor(eyes, server):
    def image_tokens(one):
        status, tokens = one.post("/tokenize", {"model": "eyes", "messages": message(data_url("turned_6.jpg"))})
        assert status == 200
        return tokens["tokens"].count(100)

    flags = ("--mm-processor-kwargs", '{"min_pixels": 64, "max_pixels": 128}', "--media-io-kwargs",
             '{"image": {"rgba_background_color": [0, 0, 0]}}', "--mm-processor-cache-gb", 0)
    with serving(eyes, *FLAGS, *flags, name="eyes") as one:
        assert 0 < image_tokens(one) <= 2 < image_tokens(server)
    with serving(eyes, *FLAGS, *flags[2:], name="eyes") as one:
        assert logprobs(ask(one, data_url("rgb.png"))) == logprobs(ask(server, data_url("rgb.png")))
        assert logprobs(ask(one, data_url("rgba.png"))) != logprobs(ask(server, data_url("rgba.png")))
        assert one.metric("vllm:mm_cache_hits_total") == 0 and one.metric("vllm:mm_cache_queries_total") == 2
    result = run("serve", eyes, *FLAGS, "--mm-processor-kwargs", '{"max_pixel": 5}')
    assert result.returncode != 0 and "max_pixel is not a setting" in result.stderr + result.stdout


def test_caches_are_emptied(server):
    first = ask(server, data_url("gray.jpg"))
    queries, hits = server.metric("vllm:mm_cache_queries_total"), server.metric("vllm:mm_cache_hits_total")
    assert logprobs(ask(server, data_url("gray.jpg"))) == logprobs(first)
    assert server.metric("vllm:mm_cache_hits_total") == hits + 1
    for path in ("/reset_mm_cache", "/reset_encoder_cache", "/reset_prefix_cache"):
        assert server.request("POST", path)[0] == 200
    assert logprobs(ask(server, data_url("gray.jpg"))) == logprobs(first)
    assert server.metric("vllm:mm_cache_hits_total") == hits + 1 and server.metric("vllm:mm_cache_queries_total") == queries + 2


def test_logprobs_and_echo_show_placeholders(server):
    tokens = server.post("/tokenize", {"model": "eyes", "messages": message(data_url("rgb.png"))})[1]["tokens"]
    found = ask(server, data_url("rgb.png"), prompt_logprobs=1, return_token_ids=True, echo=True)
    assert found["prompt_token_ids"] == tokens and found["usage"]["prompt_tokens"] == len(tokens)
    listed = found["prompt_logprobs"]
    assert len(listed) == len(tokens) and listed[0] is None
    for token, entry in zip(tokens[1:], listed[1:]):
        assert str(token) in entry and len(entry) <= 2
    assert listed[tokens.index(100)]["100"]["decoded_token"].strip() == "<|image_pad|>"
    # The logprobs depend neither on the prefix cache nor on earlier requests.
    assert ask(server, data_url("rgb.png"), prompt_logprobs=1)["prompt_logprobs"] == listed


def test_several_answers_and_structure(server):
    urls = [data_url("rgb.png"), data_url("lossy.webp")]
    drawn = {"n": 3, "temperature": 1, "seed": 5}
    several = [choice["logprobs"] for choice in ask(server, *urls, **drawn)["choices"]]
    assert len(several) == 3 and several == [choice["logprobs"] for choice in ask(server, *urls, **drawn)["choices"]]
    formed = ask(server, *urls, ignore_eos=False, structured_outputs={"choice": ["yes", "no"]})
    assert formed["choices"][0]["message"]["content"].replace(" ", "") in ("yes", "no")
    status, answer = server.post("/v1/chat/completions", body(*urls, truncate_prompt_tokens=8))
    assert status == 400 and answer["error"]["param"] == "truncate_prompt_tokens", answer


def test_history_with_images(server):
    def turns(first, second):
        return [*message(first), {"role": "assistant", "content": "a dog"}, *message(second, text="and this?")]

    def answer(messages):
        status, found = server.post("/v1/chat/completions", {**body(), "messages": messages})
        assert status == 200, found
        return found

    before = server.metric("vllm:prefix_cache_hits_total")
    one = answer(turns(data_url("rgb.png"), data_url("gray.jpg")))
    other = answer(turns(data_url("gray.jpg"), data_url("rgb.png")))
    assert logprobs(one) != logprobs(other)
    again = answer(turns(data_url("rgb.png"), data_url("gray.jpg")))
    assert logprobs(again) == logprobs(one) and server.metric("vllm:prefix_cache_hits_total") > before


def test_images_with_a_proposer_and_two_engines(eyes, server):
    expected = [logprobs(ask(server, data_url(name))) for name in ("rgb.png", "gray.jpg", "rgb.png")]
    for flags in (["--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 2}'],
                  ["--data-parallel-size", 2]):
        with serving(eyes, *FLAGS, *flags, name="eyes") as one:
            assert [logprobs(ask(one, data_url(name))) for name in ("rgb.png", "gray.jpg", "rgb.png")] == expected, flags


def test_a_batch_file_with_images(eyes, server, tmp_path):
    lines = [{"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body(data_url(name))}
             for name in ("rgb.png", "cut.jpg")]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run("run-batch", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--model", eyes, *FLAGS, "--served-model-name", "eyes")
    assert done.returncode == 0, done.stderr
    found = {row["custom_id"]: row["response"] for row in map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())}
    assert found["rgb.png"]["status_code"] == 200 and found["cut.jpg"]["status_code"] == 400
    assert found["rgb.png"]["body"]["choices"][0]["logprobs"] == logprobs(ask(server, data_url("rgb.png")))


def test_bench_sends_images_of_a_file(server, eyes, tmp_path):
    for name in ("rgb.png", "gray.jpg"):
        (tmp_path / name).write_bytes(FILES[name])
    rows = [{"prompt": "what is it?", "output_tokens": 3, "image_files": [str(tmp_path / name)]} for name in ("rgb.png", "gray.jpg")]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    call = ["bench", "serve", "--base-url", server.url, "--model", "eyes", "--tokenizer", eyes, "--dataset-name", "custom_image",
            "--dataset-path", tmp_path / "rows.jsonl", "--num-prompts", 4, "--custom-output-len", 3]
    queries = server.metric("vllm:mm_cache_queries_total")
    done = run(*call, "--backend", "openai-chat")
    assert done.returncode == 0 and re.search(r"Successful requests: +4", done.stdout), done.stdout + done.stderr
    assert server.metric("vllm:mm_cache_queries_total") >= queries + 4
    refused = run(*call, "--backend", "openai")
    assert refused.returncode == 2 and "custom_image sends images" in refused.stderr + refused.stdout
