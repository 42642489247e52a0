"""Prints what pydantic-ai receives for tools, schemas and streams, as a JSON object on stdout. Run by run_clients.py."""
import asyncio
import json
import sys

import pydantic_ai
from agent_case import ASK_CALL, ASK_JSON, ASK_TEXT, RESULT, Verdict
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

base_url, name = sys.argv[1:]
model = OpenAIChatModel(name, provider=OpenAIProvider(base_url=base_url, api_key="EMPTY"))
settings = {"temperature": 0}
calls = []


def get_weather(city: str) -> str:
    """The weather of a city."""
    calls.append(["get_weather", {"city": city}])
    return RESULT


talker = pydantic_ai.Agent(model, model_settings=settings)
agent = pydantic_ai.Agent(model, model_settings=settings, tools=[get_weather])
judge = pydantic_ai.Agent(model, model_settings=settings, output_type=pydantic_ai.NativeOutput(Verdict))


async def said_of(agent, prompt):
    async with agent.run_stream(prompt) as result:
        return await result.get_output()


async def main():
    text, answer, verdict = [(await a.run(prompt)).output for a, prompt in ((talker, ASK_TEXT), (agent, ASK_CALL), (judge, ASK_JSON))]
    streamed = await said_of(talker, ASK_TEXT)
    streamed_answer = await said_of(agent, ASK_CALL)
    print(json.dumps({"text": text, "streamed text": streamed, "call": calls[0], "streamed call": calls[1], "answer": answer,
                      "streamed answer": streamed_answer, "schema": verdict.model_dump(),
                      "streamed schema": (await said_of(judge, ASK_JSON)).model_dump()}))


asyncio.run(main())
