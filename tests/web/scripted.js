// Answers of a model that the tests do not have: with Markdown, thoughts and tool calls, one piece every few
// milliseconds. Runs before the page's own scripts and takes the place of its requests to /v1/chat/completions.
(() => {
  const real = window.fetch;
  const table = `A **hash table** keeps values under keys. A *hash function* turns a key into a number, and the number says in which of its \`buckets\` the value lies, so that finding it takes the same time however many there are.

1. The key is hashed.
2. The bucket of that number is looked up.
   - Most hold one entry.
   - Where two keys collide, both are compared.
3. The value is returned.

\`\`\`python
class Table:
    def __init__(self, size=8):
        self.buckets = [[] for _ in range(size)]  # lists of pairs

    def put(self, key, value):
        bucket = self.buckets[hash(key) % len(self.buckets)]
        bucket[:] = [pair for pair in bucket if pair[0] != key]
        bucket.append((key, value))

table = Table()
table.put("apples", 8)
\`\`\`

| operation | mean | worst |
|---|--:|--:|
| find | O(1) | O(n) |
| insert | O(1) | O(n) |

> Keep the load factor below one.
`;
  const hostile = "<script>window.hit = 1</script> <img src=x onerror=\"window.hit = 2\"> [a](javascript:window.hit=3) " +
    "![b](https://elsewhere.invalid/p.png) [c](https://elsewhere.invalid/(x)) **bold _and_ more** `a<b` \\*no\\* ***x***\n" +
    "```html\n<b onclick=\"window.hit = 4\">x</b>\n```\n" + "*a _b ".repeat(3000) + "[".repeat(5000) + "\n" + "> ".repeat(400) + "deep";
  const events = (content) => {
    const list = [];
    const push = (delta, finish = null) => list.push({choices: [{index: 0, delta, finish_reason: finish}]});
    const say = (name, text) => text.match(/.{1,7}/gs).forEach((piece) => push({[name]: piece}));
    if (content.startsWith("weather")) {
      say("reasoning", "The user wants the weather. There is a tool for that.");
      push({tool_calls: [{index: 0, id: "call_1", type: "function", function: {name: "get_weather", arguments: ""}}]});
      for (const piece of ["{\"city\":", " \"Paris\",", " \"unit\": \"celsius\"}"]) push({tool_calls: [{index: 0, function: {arguments: piece}}]});
      push({}, "tool_calls");
    } else if (content.startsWith("break")) {
      say("content", "This is");
      list.push({error: {message: "The engine is gone.", type: "InternalServerError", code: 500}});
    } else {
      say("content", content.startsWith("hostile") ? hostile : table);
      push({}, "stop");
    }
    list.push({choices: [], usage: {prompt_tokens: 24, completion_tokens: list.length - 1, prompt_tokens_details: {cached_tokens: 16}}});
    return [...list.map((event) => `data: ${JSON.stringify(event)}\n\n`), "data: [DONE]\n\n"];
  };
  window.fetch = async (url, options) => {
    if (!String(url).endsWith("/v1/chat/completions")) return real(url, options);
    window.asked = JSON.parse(options.body);
    const pieces = events(window.asked.messages.at(-1).content);
    const encoder = new TextEncoder();
    return new Response(new ReadableStream({
      async pull(controller) {
        await new Promise((resolve) => setTimeout(resolve, 5));
        if (options.signal.aborted) controller.error(new DOMException("", "AbortError"));
        else if (pieces.length > 0) controller.enqueue(encoder.encode(pieces.splice(0, 4).join("")));
        else controller.close();
      },
    }), {status: 200, headers: {"content-type": "text/event-stream"}});
  };
})();
