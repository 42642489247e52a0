"""Prints what cohere's SDK receives from an embedding server, as a JSON object on stdout. Run by run_clients.py."""
import json
import sys

import cohere

base_url, model, unknown, query, *texts = sys.argv[1:]
root = base_url.removesuffix("/v1")
first, second = cohere.Client(api_key="EMPTY", base_url=root), cohere.ClientV2(api_key="EMPTY", base_url=root)
answer = second.embed(model=model, texts=texts, input_type="document", embedding_types=["float"])
try:
    second.embed(model=unknown, texts=texts, input_type="document")
    error = None
except Exception as problem:  # the test checks its type
    error = type(problem).__name__
print(json.dumps({
    "vectors": answer.embeddings.float_,
    "order": [[result.index for result in client.rerank(model=model, query=query, documents=texts).results] for client in (first, second)],
    "error": error,
}))
