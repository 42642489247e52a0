"""Prints what litellm receives from a server, as a JSON object on stdout. Run by run_clients.py."""
import json
import sys

import litellm

base_url, model, question, prompt, unknown = sys.argv[1:]
common = {"api_base": base_url, "api_key": "EMPTY", "temperature": 0, "max_tokens": 60, "num_retries": 0}


def chat(name=model, **more):
    return litellm.completion(model="hosted_vllm/" + name, messages=[{"role": "user", "content": question}], **common, **more)


def complete(**more):
    return litellm.text_completion(model="text-completion-openai/" + model, prompt=prompt, **common, **more)


def error_of(call):
    try:
        call()
    except Exception as problem:  # the test checks its type
        return {"types": [kind.__name__ for kind in type(problem).__mro__], "message": str(problem)}


def usage(answer):
    return [answer.usage.prompt_tokens, answer.usage.completion_tokens]


answer = chat()
chunks = list(chat(stream=True, stream_options={"include_usage": True}))
whole = complete()
print(json.dumps({
    "chat": answer.choices[0].message.content,
    "usage": usage(answer),
    "pieces": [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content],
    "streamed usage": [usage(c) for c in chunks if getattr(c, "usage", None)][-1],
    "completion": whole.choices[0].text,
    "completion usage": usage(whole),
    "completion pieces": [c.choices[0].text for c in complete(stream=True) if c.choices[0].text],
    "error": error_of(lambda: chat(unknown)),
    "streamed error": error_of(lambda: list(chat(unknown, stream=True))),
}))
