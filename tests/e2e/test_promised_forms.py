"""Answers have the requested format with every kind of reasoning parser, whatever the model prefers. A complete answer has the format, and
an answer that is cut at max_tokens is a prefix of it. No part of the answer is returned as reasoning. The model returns the answers of
scripts.json; under a grammar its choices are random."""

import pytest

from serving import DATA, events, serving

SCRIPTED = DATA / "agents" / "hermes"
COLOURS, SIZES = ["amber", "teal"], [2, 8]
SCHEMA = {"type": "object", "properties": {"colour": {"enum": COLOURS}, "size": {"enum": SIZES}}, "required": ["colour", "size"], "additionalProperties": False}
JSONS = ['{"colour":"%s","size":%d}' % (colour, size) for colour in COLOURS for size in SIZES]
CODES = ["%s-%02d" % (way, n) for way in ("up", "down") for n in range(100)]
CHOICES = ["keep it", "drop it", "ask again"]
PHRASES = ["big amber", "tiny amber"]
NAMED = {"type": "function", "function": {"name": "paint"}}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("paint", "buy")]
FORMS = {
    "schema": ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}}, JSONS),
    "beside json_object": ({"response_format": {"type": "json_object", "schema": SCHEMA}}, JSONS),
    "regex": ({"structured_outputs": {"regex": "(up|down)-[0-9]{2}"}}, CODES),
    "choice": ({"structured_outputs": {"choice": CHOICES}}, CHOICES),
    "grammar": ({"grammar": 'root ::= size " amber"\nsize ::= "big" | "tiny"'}, PHRASES),
    "tag": ({"response_format": {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": SCHEMA}}}, JSONS),
}
WORDS = ("plain", "think", "one")
# The model's own chat template has no reasoning. These templates open a reasoning block, or also close it if thinking
# is off.
OPENED = "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}"


def template(folder, opening):
    text = (SCRIPTED / "chat_template.jinja").read_text()
    header = "{%- if add_generation_prompt %}<|im_start|>assistant\n"
    assert header in text
    path = folder / "template.jinja"
    path.write_text(text.replace(header, header.rstrip("\n") + "\n" + opening))
    return path


@pytest.fixture(scope="module", params=["qwen3", "deepseek_r1", "granite", "minimax_m2_append_think", "opened mimo"])
def server(request, tmp_path_factory):
    opened, _, name = request.param.rpartition("opened ")
    flags = ["--chat-template", template(tmp_path_factory.mktemp("template"), OPENED)] if request.param.startswith("opened") else []
    with serving(SCRIPTED, "--max-model-len", 2048, "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--reasoning-parser", name, *flags) as one:
        one.always_thinks = bool(flags)
        one.reads_think = name in ("qwen3", "deepseek_r1", "mimo")
        yield one


def outside(text):
    """Removes white space, which JSON allows between its parts; in the other formats it matters only in PHRASES and CHOICES."""
    return "".join(text.split())


def holds(text, finish, texts):
    known = [outside(one) for one in texts]
    said = outside(text or "")
    return any(one.startswith(said) for one in known) if finish in ("length", "max_tokens", "incomplete") else said in known


def ask(server, path, fields):
    status, answer = server.post(path, fields)
    assert status == 200, answer
    return answer


def chat(server, word, max_tokens, fields):
    return ask(server, "/v1/chat/completions", {"messages": [{"role": "user", "content": word}], "max_tokens": max_tokens, "temperature": 0, **fields})


@pytest.mark.parametrize("form", FORMS)
def test_a_form_wherever_the_answer_is_cut(server, form):
    fields, texts = FORMS[form]
    for word in WORDS:
        for max_tokens in (*range(1, 9), 13, 60):
            choice = chat(server, word, max_tokens, fields)["choices"][0]
            message, finish = choice["message"], choice["finish_reason"]
            assert holds(message["content"], finish, texts), (word, max_tokens, choice)
            if not server.always_thinks and not word == "think":
                assert max_tokens < 60 or message["content"] or message["reasoning"], (word, max_tokens, choice)


@pytest.mark.parametrize("form", FORMS)
def test_a_streamed_form_and_several_of_them(server, form):
    fields, texts = FORMS[form]
    for word in WORDS:
        body = {**fields, "n": 3, "temperature": 1, "seed": 5}
        whole = chat(server, word, 30, body)["choices"]
        status, _, raw = server.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": word}], "max_tokens": 30, "stream": True, **body})
        assert status == 200, raw
        said, reasoned, finish = {}, {}, {}
        for event in events(raw):
            for choice in event["choices"] if event != "[DONE]" else ():
                i = choice["index"]
                said[i] = said.get(i, "") + (choice["delta"].get("content") or "")
                reasoned[i] = reasoned.get(i, "") + (choice["delta"].get("reasoning") or "")
                finish[i] = choice["finish_reason"] or finish.get(i)
        for choice in whole:
            i, message = choice["index"], choice["message"]
            assert holds(message["content"], choice["finish_reason"], texts), choice
            assert (said[i], reasoned[i], finish[i]) == (message["content"] or "", message["reasoning"] or "", choice["finish_reason"])


def test_calls_that_have_to_be_made_follow_their_schema(server):
    for word in WORDS:
        for choice, names, wanted in (("required", ("paint", "buy"), "tool_calls"), ("any", ("paint", "buy"), "tool_calls"), (NAMED, ("paint",), "stop")):
            for max_tokens in (1, 5, 20, 300):
                only = chat(server, word, max_tokens, {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False})["choices"][0]
                if only["finish_reason"] == "length":
                    continue
                assert only["finish_reason"] == wanted, only
                call, = only["message"]["tool_calls"]
                assert call["function"]["name"] in names and holds(call["function"]["arguments"], "stop", JSONS), only


def test_the_other_apis(server):
    for word in WORDS:
        for max_tokens in (1, 2, 4, 9, 60):
            answer = ask(server, "/v1/responses", {"input": word, "max_output_tokens": max_tokens, "temperature": 0,
                                                   "text": {"format": {"type": "json_schema", "name": "x", "strict": True, "schema": SCHEMA}}})
            text = "".join(part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"])
            assert holds(text, "length" if answer["incomplete_details"] else "stop", JSONS), answer
            answer = ask(server, "/v1/messages", {"model": "m", "messages": [{"role": "user", "content": word}], "max_tokens": max_tokens, "temperature": 0,
                                                  "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}})
            assert holds("".join(block.get("text", "") for block in answer["content"]), answer["stop_reason"], JSONS), answer


def test_thinking_that_is_switched_off_and_an_answer_that_goes_on(server):
    fields, texts = FORMS["schema"]
    for kwargs in ({"enable_thinking": False}, {"thinking": False}):
        choice = chat(server, "plain", 200, {**fields, "chat_template_kwargs": kwargs})["choices"][0]
        assert holds(choice["message"]["content"], choice["finish_reason"], texts), choice
        if "enable_thinking" in kwargs or not server.always_thinks:
            assert choice["message"]["content"] and not choice["message"]["reasoning"], choice
    goes_on = {"continue_final_message": True, "add_generation_prompt": False}
    messages = [{"role": "user", "content": "plain"}, {"role": "assistant", "content": "<think>\nA thought.\n</think>\nThe answer: "}]
    for form, texts in FORMS.values():
        body = {"messages": messages, "max_tokens": 60, "temperature": 0, **goes_on, **form}
        choice = ask(server, "/v1/chat/completions", body)["choices"][0]
        if server.reads_think:
            assert choice["message"]["content"] and not choice["message"]["reasoning"], choice
        assert holds(choice["message"]["content"], choice["finish_reason"], texts), choice


def test_a_thought_that_is_named_in_the_prompt_is_not_open(server):
    """A <think> mark in the user's message does not open the model's reasoning."""
    fields, texts = FORMS["choice"]
    choice = chat(server, "plain words about <think> marks", 60, {**fields, "chat_template_kwargs": {"enable_thinking": False}})["choices"][0]
    assert choice["message"]["content"] in texts and not choice["message"]["reasoning"], choice


def test_the_final_channel_has_the_form():
    """gpt-oss writes all text in channels: the format applies to the final channel."""
    with serving(DATA / "agents" / "harmony", "--reasoning-parser", "openai_gptoss") as one:
        for fields, texts in FORMS.values():
            for word in ("plain it", "think it", "call it", "tell it", "twice it"):
                for max_tokens in (*range(1, 30, 4), 90):
                    choice = chat(one, word, max_tokens, fields)["choices"][0]
                    assert holds(choice["message"]["content"], choice["finish_reason"], texts), (word, max_tokens, choice)
            said = chat(one, "think it", 90, fields)["choices"][0]["message"]
            assert said["content"] and said["reasoning"] == "They greet me, so I greet them.", said


def test_constrained_reasoning_is_content():
    for extra in ((), ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3}')):
        with serving(SCRIPTED, "--max-model-len", 2048, "--reasoning-parser", "qwen3", "--structured-outputs-config", '{"enable_in_reasoning": true}', *extra) as one:
            for fields, texts in FORMS.values():
                for word in WORDS:
                    choice = chat(one, word, 60, fields)["choices"][0]
                    assert choice["message"]["content"] and not choice["message"]["reasoning"], choice
                    assert holds(choice["message"]["content"], choice["finish_reason"], texts), choice


def test_guessed_tokens_change_nothing():
    def answers(*flags):
        with serving(SCRIPTED, "--max-model-len", 2048, "--reasoning-parser", "qwen3", *flags) as one:
            return [chat(one, word, 80, {**fields, "seed": 1, "temperature": temperature})["choices"][0]["message"]
                    for fields, _ in FORMS.values() for word in WORDS for temperature in (0, 1)]

    plain = answers()
    assert answers("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3}') == plain
    assert any(message["reasoning"] for message in plain) and all(message["content"] for message in plain if not message["reasoning"])


def test_stop_strings_count_in_content(server):
    if server.reads_think:
        choice = chat(server, "think", 400, {"stop": ["wants", "Troms"]})["choices"][0]
        message = choice["message"]
        assert message["reasoning"].strip() == "The user wants the weather, so a call it is.", choice
        assert message["content"].endswith('{"city": "') and (choice["finish_reason"], choice["stop_reason"]) == ("stop", "Troms"), choice
    else:
        choice = chat(server, "think", 400, {"stop": ["wants", "Troms"]})["choices"][0]
        assert choice["message"]["content"].endswith("The user ") and choice["stop_reason"] == "wants", choice
