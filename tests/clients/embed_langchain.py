"""Prints what langchain-openai's embeddings receive from a server, as a JSON object on stdout. Run by run_clients.py."""
import json
import sys

import langchain_openai

base_url, model, unknown, query, *texts = sys.argv[1:]


def embeddings(name=model):
    # With the length check, the client would send token ids of OpenAI's vocabulary instead of
    # texts.
    return langchain_openai.OpenAIEmbeddings(model=name, base_url=base_url, api_key="EMPTY", check_embedding_ctx_length=False, max_retries=0)


try:
    embeddings(unknown).embed_query(query)
    error = None
except Exception as problem:  # the test checks its type
    error = type(problem).__name__
print(json.dumps({"vectors": embeddings().embed_documents(texts), "query": embeddings().embed_query(query), "error": error}))
