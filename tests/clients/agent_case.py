"""The questions for the scripted model of tests/data/agents/hermes: the first word of a message selects its script."""
import pydantic

ASK_TEXT, ASK_CALL, ASK_JSON = "plain words", "one call", "json please"
RESULT = "7 degrees"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.", "parameters": PARAMETERS}}


class Verdict(pydantic.BaseModel):
    verdict: str
    score: float
