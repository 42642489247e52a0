"""/v1/systemone and /v1/decisions: probabilities of labels as the first token of a reply, independent of other requests."""
import json
import math
import shutil

import openai
import pytest

from serving import ABACUS, at_once, serving

STATE = "Tom has 3 apples and buys 4 more."
CHOICE = {"type": "choice", "instructions": "How many apples has Tom?", "criteria": {"seven": "3 and 4", "eight": None, "two": None}}
SCORE = {"type": "score", "instructions": "How hard is it?", "criteria": ["easy", "middling", "hard", "very hard"]}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The bundled model, with two of its tokens renamed to yes and no."""
    folder = tmp_path_factory.mktemp("decides") / "model"
    shutil.copytree(ABACUS, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    added = {token["id"] for token in tokenizer["added_tokens"]}
    rare = [word for word, number in sorted(vocab.items(), key=lambda item: -item[1]) if number not in added and len(word) > 4][:2]
    for word, name in zip(rare, ("yes", "no"), strict=True):
        tokenizer["added_tokens"].append({"id": vocab[word], "content": name, "single_word": False, "lstrip": False, "rstrip": False,
                                          "normalized": False, "special": False})
        vocab[name] = vocab.pop(word)
    merges = tokenizer["model"]["merges"]
    tokenizer["model"]["merges"] = [pair for pair in merges if "".join(pair if isinstance(pair, list) else pair.split(" ")) not in rare]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


@pytest.fixture(scope="module")
def server(model):
    with serving(model) as running:
        yield running


def ask(server, **fields):
    status, answer = server.post("/v1/systemone", {"model": "m", "state": STATE, "questions": {"count": CHOICE, "hard": SCORE}, **fields})
    assert status == 200, answer
    return answer


def test_answers_are_the_logprobs_of_a_reply(server):
    answer = ask(server)
    prompt = STATE + "\n\nQuestion: How many apples has Tom?\nA: seven - 3 and 4\nB: eight\nC: two\nAnswer with the letter of one option only."
    ids = [server.post("/tokenize", {"model": "m", "prompt": letter, "add_special_tokens": False})[1]["tokens"][0] for letter in "ABC"]
    status, chat = server.post("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": prompt}], "max_tokens": 1, "temperature": 0,
                                                        "logprobs": True, "logprob_token_ids": ids, "return_tokens_as_token_ids": True,
                                                        "chat_template_kwargs": {"enable_thinking": False}})
    assert status == 200, chat
    entry = chat["choices"][0]["logprobs"]["content"][0]
    found = {top["token"]: top["logprob"] for top in entry["top_logprobs"]}
    weights = [math.exp(found["token_id:%d" % number]) for number in ids]
    count = answer["answers"]["count"]
    assert list(count["probabilities"]) == ["seven", "eight", "two"]
    for got, weight in zip(count["probabilities"].values(), weights, strict=True):
        assert got == pytest.approx(weight / sum(weights), rel=1e-9)
    best = max(count["probabilities"], key=count["probabilities"].get)
    assert count["type"] == "choice" and count["choice"] == best
    assert answer["diagnostics"]["count"]["label_mass"] == pytest.approx(sum(weights), rel=1e-9)
    assert count["confidence"] == pytest.approx(count["probabilities"][best] * sum(weights), rel=1e-9)
    assert answer["diagnostics"]["count"]["argmax_is_label"] == (entry["token"] in {"token_id:%d" % number for number in ids})
    score = answer["answers"]["hard"]
    assert score["legend"] == {str(i): level for i, level in enumerate(SCORE["criteria"])}
    assert score["score"] == pytest.approx(sum(int(i) * p for i, p in score["probabilities"].items()), rel=1e-9)
    assert sum(score["probabilities"].values()) == pytest.approx(1) and answer["object"] == "structured_decision"
    assert answer["usage"]["output_tokens"] == 2 and answer["usage"]["input_tokens"] > 2 * len(STATE.split())


def test_they_do_not_depend_on_the_batch(server):
    """The probabilities are the same for a request alone, with concurrent requests, and from the prefix cache."""
    alone = ask(server)["answers"]
    mixed = at_once([lambda i=i: ask(server, state=STATE if i % 2 else "Something else, %d." % i)["answers"] for i in range(16)])
    assert all(answers == alone for answers in mixed[1::2]) and all(answers != alone for answers in mixed[::2])


def test_the_client_of_openai(server):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none")
    decision = client.decisions.create(model="m", input=STATE, questions=[
        {"type": "predicate", "name": "many", "instructions": "Has Tom many apples?"},
        {"type": "choice", "instructions": "How many apples has Tom?", "choices": [{"value": "seven", "description": "3 and 4"}, {"value": "eight"}, {"value": "two"}]},
        {"type": "choice", "name": "typed", "instructions": [{"type": "input_text", "text": "Is it so?"}], "choices": [{"value": True}, {"value": "true"}]},
        {"type": "score", "name": "hard", "instructions": "How hard is it?", "levels": [{"label": level} for level in SCORE["criteria"]]}])
    predicate, choice, typed, score = decision.answers
    assert predicate.type == "predicate" and predicate.name == "many" and 0 <= predicate.probability <= 1
    own = ask(server, questions={"many": {"type": "noul", "instructions": "Has Tom many apples?"}, "count": CHOICE, "hard": SCORE})["answers"]
    assert predicate.probability == own["many"]["noul"] and own["many"]["probabilities"]["yes"] == own["many"]["noul"]
    assert choice.name is None and choice.choice == own["count"]["choice"]
    assert {entry.value: entry.probability for entry in choice.probabilities} == own["count"]["probabilities"] and choice.confidence == own["count"]["confidence"]
    assert [entry.value for entry in typed.probabilities] == [True, "true"]
    assert score.score == own["hard"]["score"] and [(entry.value, entry.label) for entry in score.probabilities] == list(enumerate(SCORE["criteria"]))
    assert decision.usage.output_tokens == 4 and decision.usage.total_tokens == decision.usage.input_tokens + 4
    messages = client.decisions.create(model="m", input=[{"role": "user", "content": [{"type": "input_text", "text": STATE}]}], questions=[
        {"type": "predicate", "instructions": "Has Tom many apples?"}])
    assert messages.answers[0].probability == predicate.probability


def test_what_is_wrong_is_named(server):
    for body, words in [({"questions": {}}, "at least one question"), ({"questions": {"a": {"type": "box"}}}, "unknown question type"),
                        ({"questions": {"a": {"type": "choice"}}}, "option names"), ({"questions": {"a": {"type": "score", "criteria": ["x"]}}}, "levels"),
                        ({"questions": {"a": {"type": "noul", "criteria": {"maybe": "x"}}}}, "true and false"),
                        ({"questions": {"a": {**CHOICE, "weight": 1}}}, "unknown field"),
                        ({"questions": {"a": {**CHOICE, "criteria": {str(i): None for i in range(27)}}}}, "at most 26"),
                        ({"questions": {str(i): CHOICE for i in range(65)}}, "at most 64"),
                        ({"chat_template_kwargs": {"enable_thinking": True}}, "thinking must be off"), ({"seed": 1}, "seed"), ({"model": "other"}, "other")]:
        status, answer = server.post("/v1/systemone", {"model": "m", "state": STATE, "questions": {"count": CHOICE}, **body})
        assert status in (400, 404) and words in answer["error"]["message"], answer
    for body, words in [({"input": []}, "list of messages"), ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input_image"),
                        ({"questions": [{"type": "predicate"}]}, "instructions"), ({"questions": [{"type": "choice", "instructions": "a", "choices": [{"value": 1}, {"value": 2}]}]}, "boolean"),
                        ({"questions": [{"type": "predicate", "instructions": "a", "weight": 2}]}, "unknown field 'weight'"),
                        ({"questions": [{"type": "choice", "instructions": "a", "choices": [{"value": "x", "bias": 1}, {"value": "y"}]}]}, "'bias' of a choice"),
                        ({"questions": [{"type": "choice", "instructions": "a", "choices": [{"value": "x", "description": 5}, {"value": "y"}]}]}, "must be a text"),
                        ({"questions": [{"type": "score", "instructions": "a", "levels": [{"label": "x", "value": 5}, {"label": "y"}]}]}, "'value' of a level")]:
        status, answer = server.post("/v1/decisions", {"model": "m", "input": STATE, "questions": [{"type": "predicate", "instructions": "a"}], **body})
        assert status == 400 and words in json.dumps(answer), answer
    with serving(ABACUS) as plain:
        status, answer = plain.post("/v1/systemone", {"model": "m", "state": STATE, "questions": {"a": {"type": "noul"}}})
        assert status == 400 and "label 'yes' is not one distinct token" in answer["error"]["message"]
