"""Prints what a client receives about an image, as a JSON object on stdout. Run by run_clients.py.

Usage: see_image.py anthropic | langchain | litellm | openai SERVER MODEL FILE
"""
import base64
import json
import pathlib
import sys

client, server, model, file = sys.argv[1:]
TOKENS = 6
QUESTION = "what is it?"
DATA = base64.b64encode(pathlib.Path(file).read_bytes()).decode()
PARTS = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + DATA}}, {"type": "text", "text": QUESTION}]
CUT = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + DATA[:80]}}, {"type": "text", "text": QUESTION}]


def with_openai(parts):
    import openai
    one = openai.OpenAI(base_url=server + "/v1", api_key="EMPTY", max_retries=0)
    answer = one.chat.completions.create(model=model, messages=[{"role": "user", "content": parts}], max_tokens=TOKENS, temperature=0)
    return answer.choices[0].message.content, answer.usage.prompt_tokens


def with_anthropic(parts):
    import anthropic
    one = anthropic.Anthropic(base_url=server, api_key="EMPTY", max_retries=0)
    data = parts[0]["image_url"]["url"].split(",")[1]
    content = [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}, parts[1]]
    fields = {"model": model, "messages": [{"role": "user", "content": content}]}
    answer = one.messages.create(max_tokens=TOKENS, extra_body={"temperature": 0}, **fields)
    assert one.messages.count_tokens(**fields).input_tokens == answer.usage.input_tokens
    return "".join(block.text for block in answer.content), answer.usage.input_tokens


def with_litellm(parts):
    import litellm
    answer = litellm.completion(model="hosted_vllm/" + model, api_base=server + "/v1", api_key="EMPTY", num_retries=0, max_tokens=TOKENS,
                                temperature=0, messages=[{"role": "user", "content": parts}])
    return answer.choices[0].message.content, answer.usage.prompt_tokens


def with_langchain(parts):
    import langchain_core.messages
    import langchain_openai
    one = langchain_openai.ChatOpenAI(model=model, base_url=server + "/v1", api_key="EMPTY", temperature=0, max_tokens=TOKENS, max_retries=0)
    answer = one.invoke([langchain_core.messages.HumanMessage(content=parts)])
    return answer.content, answer.usage_metadata["input_tokens"]


ask = {"anthropic": with_anthropic, "langchain": with_langchain, "litellm": with_litellm, "openai": with_openai}[client]
text, tokens = ask(PARTS)
error = {"types": [], "message": "no error"}
try:
    ask(CUT)
except Exception as problem:  # the test checks its type
    error = {"types": [kind.__name__ for kind in type(problem).__mro__], "message": str(problem)}
print(json.dumps({"text": text, "tokens": tokens, "error": error}))
