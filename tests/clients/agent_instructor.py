"""Prints what instructor receives for schemas and streams, as a JSON object on stdout. Run by run_clients.py."""
import json
import sys

import instructor
import openai
from agent_case import ASK_JSON, Verdict

base_url, model = sys.argv[1:]
client = instructor.from_openai(openai.OpenAI(base_url=base_url, api_key="EMPTY", max_retries=0), mode=instructor.Mode.JSON_SCHEMA)
asked = {"model": model, "temperature": 0, "max_retries": 0, "messages": [{"role": "user", "content": ASK_JSON}]}
print(json.dumps({
    "schema": client.chat.completions.create(response_model=Verdict, **asked).model_dump(),
    "streamed schema": list(client.chat.completions.create_partial(response_model=Verdict, **asked))[-1].model_dump(),
}))
