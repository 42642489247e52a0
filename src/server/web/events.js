// Server-sent events of a fetch() response: yields the text of each event's data as it arrives.

export async function* readEvents(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const {value, done} = await reader.read();
      if (done) return;
      rest += value;
      // A CR at the end may be the first half of a CRLF.
      const usable = rest.endsWith("\r") ? rest.length - 1 : rest.length;
      const blocks = rest.slice(0, usable).replaceAll("\r\n", "\n").split("\n\n");
      rest = blocks.pop() + rest.slice(usable);
      for (const block of blocks) {
        const data = dataOf(block);
        if (data !== null) yield data;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Null if the block is a comment or has no data.
function dataOf(block) {
  const lines = block.split("\n").filter((line) => line.startsWith("data:"));
  if (lines.length === 0) return null;
  return lines.map((line) => line.slice(line.startsWith("data: ") ? 6 : 5)).join("\n");
}
