"""Compares the fields of the answers printed in the recipes with the fields of this server's answers to the same requests. Ignores
values."""
import json
import re

import pytest

from serving import ABACUS, DATA, serving

RECIPES = sorted((DATA / "recipes").glob("*.md"))


def published(path):
    """(request body, answer) of each completion that the recipe prints after its curl command."""
    text = path.read_text()
    for answer in re.finditer(r'^\{"id":"cmpl-.*\}$', text, re.MULTILINE):
        request = re.findall(r"curl \S+/v1/completions .*?-d '(\{.*?\})'", text[:answer.start()], re.DOTALL)[-1]
        yield json.loads(request), json.loads(answer.group())


PUBLISHED = [(path.name[:3], *pair) for path in RECIPES for pair in published(path)]


def differences(theirs, ours, exact, at="$"):
    """The fields of `theirs` that `ours` lacks. A field that is null in `theirs` may have a value in `ours`, unless `exact`."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        found = ["%s.%s is missing" % (at, key) for key in theirs if key not in ours]
        if exact and list(theirs) != list(ours):
            found.append("%s has the fields %s, not %s" % (at, list(ours), list(theirs)))
        return found + [line for key in theirs if key in ours for line in differences(theirs[key], ours[key], exact, "%s.%s" % (at, key))]
    if isinstance(theirs, list) and isinstance(ours, list):
        if len(theirs) != len(ours):
            return ["%s has %d elements, not %d" % (at, len(ours), len(theirs))]
        return [line for i, pair in enumerate(zip(theirs, ours)) for line in differences(*pair, exact, "%s[%d]" % (at, i))]
    if theirs is None and not exact:
        return []
    return [] if type(theirs) is type(ours) else ["%s is %r, of another type than %r" % (at, ours, theirs)]


def test_there_are_answers_to_compare():
    assert [number for number, _, _ in PUBLISHED] == ["000", "001", "004"]


@pytest.mark.parametrize("number,request_body,answer", PUBLISHED, ids=[number for number, _, _ in PUBLISHED])
def test_answer(number, request_body, answer):
    is_trtllm = "tensorrt" in next(path for path in RECIPES if path.name.startswith(number)).read_text().lower()
    program = "trtllm-serve" if is_trtllm else "vllm"
    with serving(ABACUS, program=program, name=request_body["model"]) as server:
        status, ours = server.post("/v1/completions", request_body)
    assert status == 200
    assert differences(answer, ours, exact=is_trtllm) == []
    assert ours["model"] == request_body["model"]
    assert ours["choices"][0]["finish_reason"] in ("length", "stop")
    assert ours["usage"]["total_tokens"] == ours["usage"]["prompt_tokens"] + ours["usage"]["completion_tokens"]
