// Streams one answer: turns the server's events into a message.
import {stream} from "./api.js";

// Fills `message` as events arrive and calls `onchange` after each of them. Returns when the answer ends; an abort
// through `signal` is not an error.
export async function streamAnswer(body, message, signal, onchange) {
  const begin = performance.now();
  let first = null;
  try {
    for await (const event of stream("v1/chat/completions", body, signal)) {
      const choice = event.choices?.[0];
      if (choice && take(choice, message) && first === null) first = performance.now();
      if (event.usage) message.usage = usageOf(event.usage);
      onchange();
    }
  } catch (error) {
    if (signal.aborted) message.finish = "stopped";
    else message.error = error instanceof TypeError ? "The server cannot be reached." : error.message;
  }
  const end = performance.now();
  if (first !== null) message.times = {first: first - begin, rest: end - first};
  onchange();
}

// Adds the event to the message. Returns whether it had text or calls.
function take(choice, message) {
  const delta = choice.delta ?? {};
  const reasoning = delta.reasoning_content ?? delta.reasoning;
  if (reasoning) message.reasoning = (message.reasoning ?? "") + reasoning;
  if (delta.content) message.content += delta.content;
  for (const call of delta.tool_calls ?? []) takeCall(call, message);
  if (choice.finish_reason) message.finish = choice.finish_reason;
  return Boolean(reasoning || delta.content || delta.tool_calls?.length);
}

function takeCall(call, message) {
  message.toolCalls ??= [];
  const index = call.index ?? message.toolCalls.length;
  const known = message.toolCalls[index] ??= {id: "", name: "", arguments: ""};
  known.id ||= call.id ?? "";
  known.name += call.function?.name ?? "";
  known.arguments += call.function?.arguments ?? "";
}

const usageOf = (usage) => ({
  prompt: usage.prompt_tokens,
  completion: usage.completion_tokens,
  cached: usage.prompt_tokens_details?.cached_tokens ?? null,
});

// "16 tokens · 120 tokens/s · first after 32 ms"
export function describeAnswer(message) {
  const parts = [];
  const {usage, times} = message;
  if (usage) parts.push(`${usage.completion} ${usage.completion === 1 ? "token" : "tokens"}`);
  if (usage && times && usage.completion > 1 && times.rest > 0) {
    const rate = (usage.completion - 1) / times.rest * 1000;
    parts.push(`${rate.toFixed(rate < 10 ? 1 : 0)} tokens/s`);
  }
  if (times) parts.push(`first after ${times.first < 1000 ? `${times.first.toFixed(0)} ms` : `${(times.first / 1000).toFixed(1)} s`}`);
  if (usage) parts.push(`prompt ${usage.prompt}${usage.cached ? `, ${usage.cached} cached` : ""}`);
  const ends = {length: "cut at the token limit", stopped: "stopped", content_filter: "filtered", abort: "aborted",
                repetition: "ended: it repeated itself"};
  if (ends[message.finish]) parts.push(ends[message.finish]);
  return parts.join(" · ");
}
