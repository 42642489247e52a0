#!/usr/bin/env python3
"""Asks a running server the held-out problems and counts the exact answers.

    python measure.py --url http://127.0.0.1:8000 --model abacus --file models/abacus/heldout.jsonl

Needs only the standard library. An answer is correct if the number after the last `####` equals the reference's. With --ask tool
the request has a calculator (the server needs --enable-auto-tool-choice and a --tool-call-parser): the script also counts calls
whose expression has the correct value, sends the tool's result back, and checks the answer to it. With --ask json the answer
follows a schema, and the script checks its field "answer". Exits with 1 if fewer answers are correct than --at-least requires, and
with 2 if a request fails.
"""
import argparse
import ast
import json
import operator
import re
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

CALCULATOR = {"type": "function", "function": {
    "name": "calculator", "description": "Works out an arithmetic expression.",
    "parameters": {"type": "object", "required": ["expression"], "additionalProperties": False, "properties": {
        "expression": {"type": "string", "description": "Numbers with + - * / and brackets, such as (13 + 24) * 2"}}}}}
SCHEMA = {"type": "object", "properties": {"steps": {"type": "array", "items": {"type": "string"}}, "answer": {"type": "integer"}},
          "required": ["steps", "answer"], "additionalProperties": False}
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def final(text):
    found = re.findall(r"####\s*\$?(-?[\d,]+(?:\.\d+)?)", text or "")
    return found[-1].replace(",", "") if found else None


def value_of(expression):
    """The value of an expression of numbers with + - * / and brackets, as text; None for anything else."""
    def work_out(node):
        if isinstance(node, ast.BinOp):
            return OPERATORS[type(node.op)](work_out(node.left), work_out(node.right))
        if not isinstance(node, ast.Constant) or type(node.value) is not int:
            raise ValueError(node)
        return node.value
    try:
        value = work_out(ast.parse(expression.strip(), mode="eval").body)
    except (AttributeError, ValueError, KeyError, SyntaxError, TypeError, ZeroDivisionError):
        return None
    return str(int(value) if value == int(value) else value)


def ask_text(chat, row):
    """Returns, like all ask_ functions: (number in the answer, whether the call was correct (None without a call), text of the
    answer)."""
    content = chat([{"role": "user", "content": row["question"]}])["content"]
    return final(content), None, content


def ask_tool(chat, row):
    messages = [{"role": "user", "content": row["question"]}]
    message = chat(messages, tools=[CALCULATOR])
    calls = message.get("tool_calls") or []
    if not calls:
        return final(message["content"]), None, message["content"]
    arguments = calls[0]["function"]["arguments"]
    try:
        value = value_of(json.loads(arguments)["expression"])
    except (ValueError, KeyError, TypeError):
        value = None
    result = {"role": "tool", "tool_call_id": calls[0]["id"], "content": value or "That is no expression."}
    content = chat([*messages, message, result], tools=[CALCULATOR])["content"]
    return final(content), value == final(row["answer"]), arguments + "\n" + content


def ask_json(chat, row):
    format = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
    content = chat([{"role": "user", "content": row["question"] + " Answer in JSON."}], response_format=format)["content"]
    try:
        return str(json.loads(content)["answer"]), None, content
    except ValueError:   # cut off by --max-tokens
        return None, None, content


ASK = {"text": ask_text, "tool": ask_tool, "json": ask_json}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--url", default="http://127.0.0.1:8000", help="the server's address, without /v1")
    p.add_argument("--model", default="abacus")
    p.add_argument("--file", default="models/abacus/heldout.jsonl")
    p.add_argument("--ask", choices=sorted(ASK), default="text", help="for steps, for a call of a tool, or for JSON")
    p.add_argument("--limit", type=int, help="only the first so many problems")
    p.add_argument("--concurrency", type=int, default=8)
    p.add_argument("--max-tokens", type=int, default=160)
    p.add_argument("--timeout", type=float, default=120)
    p.add_argument("--at-least", type=float, default=0.0, metavar="PERCENT")
    p.add_argument("--api-key")
    p.add_argument("--show-wrong", type=int, default=0, metavar="N")
    args = p.parse_args()

    with open(args.file) as f:
        rows = [json.loads(line) for line in f if line.strip()][:args.limit]
    headers = {"Content-Type": "application/json"}
    if args.api_key:
        headers["Authorization"] = "Bearer " + args.api_key

    def chat(messages, **fields):
        body = {"model": args.model, "temperature": 0, "max_tokens": args.max_tokens, "messages": messages, **fields}
        request = urllib.request.Request(args.url.rstrip("/") + "/v1/chat/completions",
                                         json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=args.timeout) as reply:
            return json.load(reply)["choices"][0]["message"]

    began = time.time()
    try:
        with ThreadPoolExecutor(args.concurrency) as pool:
            answers = list(pool.map(lambda row: ASK[args.ask](chat, row), rows))
    except OSError as e:
        print(f"the server did not answer: {e}", file=sys.stderr)
        return 2

    kinds, right, shown = {}, 0, 0
    for row, (number, _, answer) in zip(rows, answers):
        ok = number == final(row["answer"])
        count = kinds.setdefault(row.get("kind", "all"), [0, 0])
        count[0] += ok
        count[1] += 1
        right += ok
        if not ok and shown < args.show_wrong:
            shown += 1
            print(f"wrong: {row['question']}\n  expected: {row['answer']!r}\n  got:      {answer!r}")
    for kind, (good, all_) in kinds.items():
        print(f"{kind:16} {good:4} of {all_:4}  {100 * good / all_:5.1f} %")
    percent = 100 * right / max(1, len(rows))
    if args.ask == "tool":
        calls = [was_right for _, was_right, _ in answers if was_right is not None]
        print(f"{sum(calls)} of {len(calls)} calls right ({100 * sum(calls) / max(1, len(calls)):.1f} %)")
    print(f"{right} of {len(rows)} right ({percent:.1f} %), {time.time() - began:.1f} s")
    return 0 if percent >= args.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
