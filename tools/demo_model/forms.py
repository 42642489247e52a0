"""Chats whose request has a tool to call, or prescribes the format of the answer.

A request is (tools, messages) as in the chat API. `parts` formats a request like the chat template, for the training
text; check.py compares the two.
"""
import json
import random

import problems
from measure import CALCULATOR

OTHER_TOOLS = [("get_weather", ["city"]), ("get_weather", ["city", "days"]), ("search", ["query"]), ("get_time", []), ("book", ["city"]),
               ("read_file", ["path"]), ("weather", ["city", "days"]), ("send", ["name", "text"])]

# The tool's expression for the answer, for each kind of problem that it can compute, in the letters of problems.KINDS. A
# blank precedes every number, as in the steps, so that the model has to learn only one way to copy numbers.
EXPRESSIONS = {
    "buy_more": " {a} + {b}", "give_away": " {a} - {b}", "gain_then_lose": " {a} + {b} - {c}", "lose_then_gain": " {a} - {b} + {c}",
    "groups": " {a} * {b}", "groups_plus": " {a} * {b} + {c}", "groups_minus": " {a} * {b} - {c}", "share": " {a} / {b}", "difference": " {a} - {b}",
    "age_future": " {a} + {b} + {c}", "age_younger": " {a} - {b} + {c}", "three_days": " {a} + {b} + {c}", "distance": " {a} * {b} + {c}",
    "pay": " {a} * {b} + {c}", "plain_sum": " {a} {o} {b}",
}

IN_JSON = ["Answer in JSON.", "Answer in JSON.", 'Answer in JSON with "steps" and "answer".', "Give the steps and the answer as JSON.", "Reply in JSON."]


def call(expression):
    return {"id": "call_1", "type": "function", "function": {"name": "calculator", "arguments": json.dumps({"expression": expression})}}


def in_json(answer):
    """An answer of problems.problem() as JSON, in measure.SCHEMA."""
    *steps, last = answer.split("\n")
    return json.dumps({"steps": steps, "answer": int(last.removeprefix("#### "))})


def with_tool(r, kind=None, split="train"):
    """(tools, messages): a problem, the call that computes it and, in some cases, the tool's result and the answer."""
    kind, question, _, f = problems.drawn(r, kind or r.choice(list(EXPRESSIONS)), split)
    result = f["ans"]
    if split == "train" and r.random() < 0.3:
        result = r.randint(1, 400)  # the answer repeats the tool's result, even a wrong one
    said = str(result)
    if r.random() < 0.15:
        said = json.dumps({"result": result})
    messages = [{"role": "user", "content": question},
                {"role": "assistant", "content": "", "tool_calls": [call(EXPRESSIONS[kind].format(**f))]},
                {"role": "tool", "tool_call_id": "call_1", "content": said},
                {"role": "assistant", "content": f"The answer is {result}.\n#### {result}"}]
    # What follows a call is easy to learn, so most texts end with the call.
    return [CALCULATOR], messages[:None if split != "train" or r.random() < 0.2 else 2]


def without_call(r):
    """A request with tools and a plain answer: the tools do not help, or the model solves the problem without them."""
    x = r.random()
    if x < 0.15:
        reply, asked = r.choice(problems.SMALL_TALK)
        return [CALCULATOR], [{"role": "user", "content": r.choice(asked)}, {"role": "assistant", "content": reply}]
    if x < 0.75:
        _, question, answer = problems.problem(r, r.choice([kind for kind in problems.KINDS if kind not in EXPRESSIONS]))
        return [CALCULATOR], [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    _, question, answer = problems.problem(r)
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {key: {} for key in keys}}}}
             for name, keys in r.sample(OTHER_TOOLS, r.choice((1, 1, 2)))]
    return tools, [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def in_schema(r, kind=None, split="train"):
    """(None, messages): a problem and its answer in JSON. Most questions ask for JSON."""
    _, question, answer = problems.problem(r, kind, split)
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": in_json(answer)}]
    if r.random() < 0.8:
        asked = r.choice(IN_JSON)
        if r.random() < 0.4:
            messages.insert(0, {"role": "system", "content": asked})
        else:
            messages[0]["content"] += r.choice((" ", " ", "\n", "\n\n")) + asked
    return None, messages


def parts(tools, messages):
    """The request as the chat template formats it: (role, content) per message; an answer's may also have (start, end,
    mark) for characters that are weighted differently (see tokenizer.encode)."""
    out = []
    if tools:
        lines = [json.dumps({"name": f["name"], "arguments": list(f["parameters"]["properties"])}) for f in (t["function"] for t in tools)]
        out.append(("system", "\n".join(["<tools>", *lines, "</tools>"])))
    prefix = '{"steps": ["'
    asked = any("JSON" in m["content"] for m in messages if m["role"] != "assistant")
    for m in messages:
        content = m["content"]
        calls = m.get("tool_calls", ())
        for c in calls:
            arguments = c["function"]["arguments"]
            head = content + '<tool_call>\n{"name": ' + json.dumps(c["function"]["name"]) + ', "arguments": '
            content = head + arguments + "}\n</tool_call>"
            start = len(head) + arguments.index(": ") + 3
            out.append((m["role"], content, (start, len(head) + len(arguments) - 1, 3)))
        if calls:
            continue
        if content.startswith(prefix) and not asked:
            # Only a constraint makes the model begin like this, so do not train it on this beginning.
            out.append((m["role"], content, (0, len(prefix), 0), (len(prefix), len(content), 4)))
        elif content.startswith(prefix):
            out.append((m["role"], content, (0, len(content), 4)))
        else:
            out.append((m["role"], content))
    return out


def request(r):
    x = r.random()
    if x < 0.58:
        return with_tool(r)
    if x < 0.68:
        return without_call(r)
    return in_schema(r)


def document(r, share):
    """A training document: with probability `share` a request of these forms, else from problems.document()."""
    return ("chat", parts(*request(r))) if r.random() < share else problems.document(r)


def held_out(form, count, seed):
    """`count` held-out requests of with_tool or in_schema over all kinds."""
    r = random.Random(seed)
    kinds = list(EXPRESSIONS if form is with_tool else problems.KINDS)
    return [form(r, kinds[n % len(kinds)], "heldout") for n in range(count)]
