#!/usr/bin/env python3
"""Makes tests/data/chat_templates/cases_extra.jsonl: small templates and their output in transformers' Jinja environment.

    python3 -m venv venv && venv/bin/pip install jinja2==3.1.6 transformers==5.23.0
    venv/bin/python tools/chat_templates/make_cases.py

Each row is {"template": source, "variables": {...}} with "expected" text or "error" {"type", "message"}. Each snippet is
rendered separately, so that a difference points at one construct.
"""
import datetime
import json
import logging
import pathlib

import jinja2
import transformers.utils.chat_template_utils as chat_template_utils

logging.getLogger("transformers").setLevel(logging.ERROR)


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2025, 7, 26, 12, 34, 56)


chat_template_utils.datetime = FixedClock

VARIABLES = {
    "messages": [
        {"role": "system", "content": "Be <brief> & 'kind'."},
        {"role": "user", "content": "Hi \u00fc\U0001f600"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": 1, "b": [1.5, None, True]}}}]},
        {"role": "tool", "content": "{\"x\": 1}", "tool_call_id": "c1"},
    ],
    "numbers": [3, 1, 2, 10],
    "floats": [0.1, 1e16, 1e-5, -0.0, 123456.789, 2.5, 1e22, 5e-324],
    "words": ["b", "A", "c", "a"],
    "mixed": [1, "x", None, True, 2.5, [1], {"k": "v"}],
    "people": [{"name": "Al", "age": 30, "city": {"zip": 1}}, {"name": "bo", "age": 25}, {"name": "Cy", "city": {"zip": 2}}],
    "d": {"b": 2, "a": 1, "C": [1, 2], "items": "shadow", "n": None},
    "text": "Hello, World! it's a\ttab\nnew  line \u00e9\u00df\u65e5\u672c ",
    "empty": "", "zero": 0, "yes": True, "no": False, "nothing": None,
    "big": 123456789012345678901234567890, "n": 7, "neg": -7, "f": 2.5,
    "html": "<b>\"x\" & 'y'</b>",
    "tree": [{"v": 1, "k": [{"v": 2, "k": []}, {"v": 3, "k": [{"v": 4, "k": []}]}]}, {"v": 5, "k": []}],
}


def environment_render(source, variables):
    template = chat_template_utils._compile_jinja_template(source)
    return template.render(**json.loads(json.dumps(variables)))


def run(source, variables):
    row = {"template": source}
    if variables is not VARIABLES:
        row["variables"] = variables
    try:
        row["expected"] = environment_render(source, variables)
    except jinja2.exceptions.TemplateError as error:
        name = "TemplateError" if type(error) is jinja2.exceptions.TemplateError else type(error).__name__
        row["error"] = {"type": name, "message": str(error)}
    except Exception as error:  # Python's own exceptions pass through templates unchanged.
        row["error"] = {"type": type(error).__name__, "message": str(error)}
    return row


def main():
    here = pathlib.Path(__file__).resolve()
    snippets = (here.parent / "snippets.txt").read_text().split("\n%%\n")
    out = here.parents[2] / "tests/data/chat_templates/cases_extra.jsonl"
    with open(out, "w") as file:
        file.write(json.dumps({"variables": VARIABLES}) + "\n")
        for snippet in snippets:
            # One snippet per line, or a multi-line block that begins with a line "%block".
            lines = [snippet[len("%block\n"):]] if snippet.startswith("%block\n") else snippet.split("\n")
            for source in filter(None, lines):
                file.write(json.dumps(run(source, VARIABLES)) + "\n")


if __name__ == "__main__":
    main()
