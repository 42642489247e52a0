"""Constrained answers have the required form and do not slow down other requests; an invalid constraint gets status 400."""
import json
import re
import threading
import time

import pytest

from serving import at_once

SCHEMA = {"type": "object", "properties": {"name": {"enum": ["ann", "tom"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99},
                                           "ok": {"type": "boolean"}},
          "required": ["name", "age", "ok"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}


def chat(server, **fields):
    status, answer = server.post("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "Tom has 3 apples."}],
                                                          "max_tokens": 200, **fields})
    assert status == 200, answer
    return answer["choices"]


def is_person(text):
    person = json.loads(text)
    return list(person) == ["name", "age", "ok"] and person["name"] in ("ann", "tom") and 0 <= person["age"] <= 99 and isinstance(person["ok"], bool)


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1.5, "seed": 5}, {"temperature": 1, "top_p": 0.9, "seed": 7, "n": 3}])
def test_a_schema(abacus, sampling):
    # frequency_penalty: the model could otherwise produce white space forever.
    choices = chat(abacus, response_format=FORMAT, frequency_penalty=1, **sampling)
    done = [c for c in choices if c["finish_reason"] == "stop"]
    assert done, choices
    assert all(is_person(c["message"]["content"]) for c in done)


@pytest.mark.parametrize("constraint, pattern", [
    ({"structured_outputs": {"regex": "[a-c]{3}-[0-9]{2}"}}, "[a-c]{3}-[0-9]{2}"),
    ({"structured_outputs": {"choice": ["left", "right", "a \"b\""]}}, "left|right|a \"b\""),
    ({"structured_outputs": {"grammar": "root ::= \"<\" item (\",\" item)? \">\"\nitem ::= [xyz]"}}, "<[xyz](,[xyz])?>"),
    ({"structured_outputs": {"grammar": "start: \"SELECT \" COL\nCOL: \"a\" | \"b\""}}, "SELECT [ab]"),
    ({"response_format": {"type": "structural_tag", "format": {"type": "sequence", "elements": [
        {"type": "const_string", "value": "Hi "}, {"type": "regex", "pattern": "[0-9]{2}"}]}}}, "Hi [0-9]{2}"),
    ({"guided_regex": "ab?c"}, "ab?c"), ({"guided_choice": ["p", "q"]}, "[pq]"), ({"guided_decoding": {"regex": "[0-9]{4}"}}, "[0-9]{4}"),
])
def test_every_kind(abacus, constraint, pattern):
    for sampling in ({"temperature": 0}, {"temperature": 1, "seed": 3}):
        choice, = chat(abacus, **constraint, **sampling)
        assert re.fullmatch(pattern, choice["message"]["content"]) and choice["finish_reason"] == "stop"


def test_strings_of_bounded_length(abacus):
    schema = {"type": "string", "minLength": 3, "maxLength": 9}
    for sampling in ({"temperature": 0}, {"temperature": 1.5, "seed": 1}, {"temperature": 1.5, "seed": 2, "n": 4}):
        for choice in chat(abacus, structured_outputs={"json": schema}, **sampling):
            assert choice["finish_reason"] == "stop" and 3 <= len(json.loads(choice["message"]["content"])) <= 9


def test_streams_stop_strings_and_cuts(abacus):
    regex = {"structured_outputs": {"regex": "[a-c]{6}END[0-9]{3}"}, "temperature": 0}
    whole, = chat(abacus, **regex)
    cut, = chat(abacus, **regex, stop=["END"])
    assert cut["message"]["content"] == whole["message"]["content"][:6] and cut["finish_reason"] == "stop"
    short, = chat(abacus, **regex, max_tokens=2)
    assert whole["message"]["content"].startswith(short["message"]["content"]) and short["finish_reason"] == "length"
    overruled, = chat(abacus, structured_outputs={"choice": ["ok"]}, min_tokens=30)
    assert overruled["message"]["content"] == "ok" and overruled["finish_reason"] == "stop"


def test_neighbours_and_logprobs_are_the_same_whatever_the_batch(abacus):
    def ask(fields):
        choice = abacus.complete("Tom has 3 apples and buys 4 more.", max_tokens=40, logprobs=3, **fields)
        return choice["text"], choice["logprobs"]["token_logprobs"]

    kinds = [{}, {"structured_outputs": {"regex": "[0-9a-f]{30}"}}, {"response_format": FORMAT}, {"structured_outputs": {"json": SCHEMA}, "seed": 3}]
    alone = [ask(kind) for kind in kinds]
    assert at_once([lambda kind=kind: ask(kind) for kind in kinds * 6]) == alone * 6


@pytest.mark.parametrize("constraint, words", [
    ({"structured_outputs": {"grammar": "root ::= ("}}, "structured_outputs.grammar"),
    ({"structured_outputs": {"grammar": "root ::= missing"}}, "missing"),
    ({"structured_outputs": {"regex": "[a"}}, "structured_outputs.regex"),
    ({"response_format": {"type": "structural_tag", "format": {"type": "nope"}}}, "response_format"),
    ({"guided_json": {"type": "strng"}}, "guided_json: at #"),
    ({"structured_outputs": {"regex": "a"}, "use_beam_search": True, "n": 2}, "beam search"),
    ({"structured_outputs": {"regex": "[a-c]{3}"}, "allowed_token_ids": [1]}, "no token is left"),
])
def test_what_is_wrong_is_refused(abacus, constraint, words):
    status, answer = abacus.post("/v1/completions", {"model": "m", "prompt": "a", **constraint})
    assert status == 400 and words in answer["error"]["message"], answer


def test_a_constraint_that_costs_too_much_is_refused_while_others_go_on(abacus):
    grammar = "root ::= " + " ".join("[a-z]{0,%d}" % (100 + i) for i in range(300))
    ends = []
    stop = threading.Event()

    def neighbour():
        while not stop.is_set():
            abacus.complete("Tom has 3 apples.", max_tokens=2)
            ends.append(time.monotonic())

    thread = threading.Thread(target=neighbour)
    thread.start()
    try:
        start = time.monotonic()
        answers = at_once([lambda i=i: abacus.post("/v1/completions", {"model": "m", "prompt": "a", "structured_outputs": {"grammar": grammar + " [%s]" % i}})
                           for i in range(2)])
        end = time.monotonic()
    finally:
        stop.set()
        thread.join()
    assert [status for status, _ in answers] == [400] * 2, answers
    assert "to compile" in answers[0][1]["error"]["message"]
    assert sum(start < at < end for at in ends) > 2
