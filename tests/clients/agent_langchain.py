"""Prints what langchain-openai receives for tools, schemas and streams, as a JSON object on stdout. Run by run_clients.py."""
import functools
import json
import operator
import sys

import langchain_openai
from agent_case import ASK_CALL, ASK_JSON, ASK_TEXT, RESULT, TOOL, Verdict
from langchain_core.messages import HumanMessage, ToolMessage

base_url, model = sys.argv[1:]
chat = langchain_openai.ChatOpenAI(model=model, base_url=base_url, api_key="EMPTY", temperature=0, max_retries=0)
agent = chat.bind_tools([TOOL])


def call_of(message):
    return [message.tool_calls[0]["name"], message.tool_calls[0]["args"]]


message = agent.invoke(ASK_CALL)
history = [HumanMessage(ASK_CALL), message, ToolMessage(RESULT, tool_call_id=message.tool_calls[0]["id"])]
print(json.dumps({
    "text": chat.invoke(ASK_TEXT).content,
    "streamed text": "".join(piece.content for piece in chat.stream(ASK_TEXT)),
    "call": call_of(message),
    "streamed call": call_of(functools.reduce(operator.add, agent.stream(ASK_CALL))),
    "answer": agent.invoke(history).content,
    "schema": chat.with_structured_output(Verdict, method="json_schema").invoke(ASK_JSON).model_dump(),
}))
