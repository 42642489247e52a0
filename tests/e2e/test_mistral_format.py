"""Models in Mistral's own format: params.json, consolidated*.safetensors and tekken.json."""
import json
import os
import shutil

from loopback_hub import Repository, serving_hub
from test_download import Place

from serving import DATA, run, serving

CHECKPOINTS = DATA / "checkpoints"
OWN = CHECKPOINTS / "tiny-mistral-own"
AS_RECIPES_SAY = ("--tokenizer-mode", "mistral", "--config-format", "mistral", "--load-format", "mistral")


def test_serves_with_mistrals_launch():
    recorded = json.loads((DATA / "tokenizers/tekken.json").read_text())["chats"]
    calls, chat = (next(row for row in recorded if (row["version"], row["name"]) == ("v13", name)) for name in ("calls", "system"))
    with serving(OWN, "--dtype", "float32", *AS_RECIPES_SAY) as server:
        status, answer = server.post("/tokenize", {**calls["request"], "add_generation_prompt": True})
        assert status == 200 and answer["tokens"] == calls["ids"], answer
        body = {**chat["request"], "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        status, answer = server.post("/v1/chat/completions", body)
        assert status == 200 and answer["usage"] == {**answer["usage"], "prompt_tokens": len(chat["ids"]), "completion_tokens": 8}, answer
        golden = json.loads((OWN / "golden.json").read_text())["cases"][1]
        status, answer = server.post("/v1/completions", {"prompt": golden["prompt"], "max_tokens": 16, "temperature": 0, "ignore_eos": True,
                                                         "return_token_ids": True})
        assert status == 200 and answer["choices"][0]["token_ids"] == golden["greedy"], answer


def test_inspect_tells_the_format():
    result = run("inspect", OWN)
    assert result.returncode == 0 and "Ministral3ForCausalLM" in result.stdout and "tekken.json" in result.stdout, result.stdout + result.stderr
    result = run("inspect", CHECKPOINTS / "tiny-mistral-large3", "--json")
    report = json.loads(result.stdout)
    assert report["memory"] and report["architecture"] == "Mistral4ForCausalLM", report


def test_what_is_damaged_is_named(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(OWN, folder)
    params = json.loads((OWN / "params.json").read_text())
    (folder / "params.json").write_text(json.dumps({**params, "n_heads": None}))
    result = run("inspect", folder)
    assert result.returncode != 0 and "params.json: n_heads is missing" in result.stderr, result.stderr
    (folder / "params.json").write_text(json.dumps({**params, "model_type": "mamba"}))
    result = run("inspect", folder)
    assert "model_type is not supported: expected transformer, found mamba" in result.stdout + result.stderr
    shutil.copy(OWN / "params.json", folder)
    (folder / "consolidated-00002-of-00002.safetensors").unlink()
    result = run("complete", folder, "--prompt", "the")
    assert result.returncode != 0 and "consolidated-00002-of-00002.safetensors" in result.stderr, result.stderr


def test_is_downloaded(tmp_path):
    files = {name: (OWN / name).read_bytes() for name in os.listdir(OWN) if name != "golden.json"}
    with serving_hub({"a/b": Repository({**files, "README.md": b"#"})}) as hub:
        assert set(os.listdir(Place(hub, tmp_path).pulled())) == set(files)
