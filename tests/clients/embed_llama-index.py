"""Prints what llama-index's embeddings receive from a server, as a JSON object on stdout. Run by run_clients.py."""
import json
import sys

from llama_index.embeddings.openai_like import OpenAILikeEmbedding

base_url, model, unknown, query, *texts = sys.argv[1:]


def embeddings(name=model):
    return OpenAILikeEmbedding(model_name=name, api_base=base_url, api_key="EMPTY", max_retries=0)


try:
    embeddings(unknown).get_query_embedding(query)
    error = None
except Exception as problem:  # the test checks its type
    error = type(problem).__name__
print(json.dumps({"vectors": embeddings().get_text_embedding_batch(texts), "query": embeddings().get_query_embedding(query), "error": error}))
