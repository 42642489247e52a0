"""Prints what OpenAI's SDK receives from an embedding server, as a JSON object on stdout. Run by run_clients.py."""
import json
import sys

import openai

base_url, model, unknown, query, *texts = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key="EMPTY", max_retries=0)
# The SDK requests base64 and decodes it to numbers.
answer = client.embeddings.create(model=model, input=texts)
try:
    client.embeddings.create(model=unknown, input=texts)
    error = None
except Exception as problem:  # the test checks its type
    error = type(problem).__name__
print(json.dumps({
    "vectors": [entry.embedding for entry in answer.data],
    "query": client.embeddings.create(model=model, input=query, encoding_format="float").data[0].embedding,
    "error": error,
}))
