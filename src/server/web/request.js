// Makes the request of a conversation, and the same request as a curl command and a Python program.

// The fields of the settings panel. Empty ones, except the prompt, are omitted from a request, so that the server's
// defaults apply.
export const numberFields = [
  {name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.1},
  {name: "top_p", label: "Top p", min: 0.01, max: 1, step: 0.01},
  {name: "max_tokens", label: "Max. tokens", min: 1, step: 1},
  {name: "top_k", label: "Top k", min: -1, step: 1},
  {name: "min_p", label: "Min p", min: 0, max: 1, step: 0.01},
  {name: "seed", label: "Seed", step: 1},
  {name: "presence_penalty", label: "Presence penalty", min: -2, max: 2, step: 0.1},
  {name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, step: 0.1},
];

// Fields that are not parameters of the openai package.
const notOfOpenAi = new Set(["top_k", "min_p"]);
const knownToOpenAi = new Set(["model", "messages", "stream", "stream_options", "stop", "tools", "tool_choice",
                               "response_format", "n", "logprobs", "top_logprobs", "logit_bias", "user",
                               "parallel_tool_calls", "reasoning_effort"]);

// Throws if it is not a JSON object.
export function parseExtra(text) {
  if (!text?.trim()) return {};
  const extra = JSON.parse(text);
  if (extra === null || typeof extra !== "object" || Array.isArray(extra)) throw new Error("expected a JSON object");
  return extra;
}

function wireMessage(message) {
  const result = {role: message.role, content: message.content};
  if (message.images?.length) {
    result.content = message.images.map((url) => ({type: "image_url", image_url: {url}}));
    if (message.content) result.content.push({type: "text", text: message.content});
  }
  if (message.toolCalls?.length) {
    result.tool_calls = message.toolCalls.map(({id, name, arguments: text}) => (
      {id, type: "function", function: {name, arguments: text}}));
  }
  if (message.toolCallId) result.tool_call_id = message.toolCallId;
  return result;
}

export function requestBody(model, settings, messages) {
  const body = {model, messages: []};
  if (settings.system?.trim()) body.messages.push({role: "system", content: settings.system});
  // An answer that failed before its first token is omitted.
  const said = messages.filter((message) => message.role !== "assistant" || message.content || message.toolCalls?.length);
  body.messages.push(...said.map(wireMessage));
  for (const {name} of numberFields) {
    const value = settings[name];
    if (value !== undefined && value !== null && value !== "") body[name] = Number(value);
  }
  const stop = (settings.stop ?? "").split("\n").filter((line) => line !== "");
  if (stop.length > 0) body.stop = stop;
  return {...body, stream: true, stream_options: {include_usage: true}, ...parseExtra(settings.extra)};
}

export function asCurl(url, body, hasKey) {
  const key = hasKey ? " \\\n  -H \"Authorization: Bearer $SLUICE_API_KEY\"" : "";
  return `curl -N ${shellWord(url)} \\\n  -H 'Content-Type: application/json'${key} \\\n  -d @- <<'JSON'\n${JSON.stringify(body, null, 2)}\nJSON\n`;
}

const shellWord = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function python(value, indent) {
  const inner = indent + "    ";
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const parts = Array.isArray(value)
    ? value.map((part) => python(part, inner))
    : Object.entries(value).map(([name, part]) => `${JSON.stringify(name)}: ${python(part, inner)}`);
  const line = open + parts.join(", ") + close;
  if (line.length + indent.length < 88 && !line.includes("\n")) return line;
  return `${open}\n${inner}${parts.join(`,\n${inner}`)},\n${indent}${close}`;
}

export function asPython(baseUrl, body, hasKey) {
  const known = [];
  const extra = {};
  for (const [name, value] of Object.entries(body)) {
    const isKnown = knownToOpenAi.has(name) ||
      (numberFields.some((field) => field.name === name) && !notOfOpenAi.has(name));
    if (isKnown) known.push(`    ${name}=${python(value, "    ")},\n`);
    else extra[name] = value;
  }
  if (Object.keys(extra).length > 0) known.push(`    extra_body=${python(extra, "    ")},\n`);
  const key = hasKey ? "os.environ[\"SLUICE_API_KEY\"]" : "\"none\"";
  const call = `client.chat.completions.create(\n${known.join("")})\n`;
  const read = body.stream
    ? `for chunk in ${call.trimEnd()}:\n    if chunk.choices:\n        print(chunk.choices[0].delta.content or "", end="", flush=True)\n`
    : `answer = ${call}print(answer.choices[0].message.content)\n`;
  return `${hasKey ? "import os\n\n" : ""}from openai import OpenAI\n\nclient = OpenAI(base_url=${JSON.stringify(baseUrl)}, api_key=${key})\n${read}`;
}
