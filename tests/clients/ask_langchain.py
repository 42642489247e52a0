"""Prints what langchain-openai receives from a server, as a JSON object on stdout. Run by run_clients.py."""
import json
import sys

import langchain_openai

base_url, model, question, prompt, unknown = sys.argv[1:]


def client(kind, name=model):
    return kind(model=name, base_url=base_url, api_key="EMPTY", temperature=0, max_tokens=60, max_retries=0)


def error_of(call):
    try:
        call()
    except Exception as problem:  # the test checks its type
        return {"types": [kind.__name__ for kind in type(problem).__mro__], "message": str(problem)}


chat = client(langchain_openai.ChatOpenAI)
answer = chat.invoke(question)
pieces = list(chat.stream(question, stream_usage=True))
used = [piece.usage_metadata for piece in pieces if piece.usage_metadata]
complete = client(langchain_openai.OpenAI)
whole = complete.generate([prompt])
print(json.dumps({
    "chat": answer.content,
    "usage": [answer.usage_metadata["input_tokens"], answer.usage_metadata["output_tokens"]],
    "pieces": [piece.content for piece in pieces if piece.content],
    "streamed usage": [[u["input_tokens"], u["output_tokens"]] for u in used][-1],
    "completion": whole.generations[0][0].text,
    "completion usage": [whole.llm_output["token_usage"][key] for key in ("prompt_tokens", "completion_tokens")],
    "completion pieces": [piece for piece in complete.stream(prompt) if piece],
    "error": error_of(lambda: client(langchain_openai.ChatOpenAI, unknown).invoke(question)),
    "streamed error": error_of(lambda: list(client(langchain_openai.ChatOpenAI, unknown).stream(question))),
}))
