// Parses Prometheus' text format, and computes changes between two readings.

const sampleLine = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const bound = /(?:^|,)le="([^"]+)"/;

// {values: Map name -> sum over all labels, buckets: Map name -> [[upper bound, cumulative count]]}
export function parseMetrics(text) {
  const values = new Map();
  const buckets = new Map();
  for (const line of text.split("\n")) {
    if (line === "" || line[0] === "#") continue;
    const found = sampleLine.exec(line);
    if (!found) continue;
    const [, name, labels = "", word] = found;
    const value = Number(word);
    if (Number.isNaN(value)) continue;
    const le = name.endsWith("_bucket") ? bound.exec(labels) : null;
    if (!le) {
      values.set(name, (values.get(name) ?? 0) + value);
      continue;
    }
    const family = name.slice(0, -"_bucket".length);
    if (!buckets.has(family)) buckets.set(family, new Map());
    const limit = le[1] === "+Inf" ? Infinity : Number(le[1]);
    const counts = buckets.get(family);
    counts.set(limit, (counts.get(limit) ?? 0) + value);
  }
  return {values, buckets};
}

// A label of the first sample of `name`, or null.
export function labelOf(text, name, label) {
  const start = text.indexOf(`\n${name}{`);
  if (start < 0) return null;
  const line = text.slice(start + 1, text.indexOf("\n", start + 1));
  return new RegExp(`[{,]${label}="([^"]*)"`).exec(line)?.[1] ?? null;
}

export const valueOf = (reading, name) => reading.values.get(name) ?? 0;

// The increase of a counter; null if the server was restarted between the readings.
export function gained(before, after, name) {
  const difference = valueOf(after, name) - valueOf(before, name);
  return difference < 0 ? null : difference;
}

// The mean of a histogram's observations between two readings; null if there were none.
export function meanBetween(before, after, name) {
  const count = gained(before, after, `${name}_count`);
  const sum = gained(before, after, `${name}_sum`);
  return count && sum !== null ? sum / count : null;
}

// A quantile of a histogram's observations between two readings, linear within its bucket; null if there were none.
export function quantileBetween(before, after, name, quantile) {
  const late = [...(after.buckets.get(name) ?? [])].sort((a, b) => a[0] - b[0]);
  const early = before.buckets.get(name) ?? new Map();
  const counts = late.map(([limit, count]) => [limit, count - (early.get(limit) ?? 0)]);
  const total = counts.at(-1)?.[1] ?? 0;
  if (total <= 0) return null;
  let lower = 0;
  let below = 0;
  for (const [limit, count] of counts) {
    if (count >= quantile * total) {
      if (limit === Infinity) return lower;
      return lower + (limit - lower) * (quantile * total - below) / Math.max(count - below, 1e-9);
    }
    lower = limit;
    below = count;
  }
  return lower;
}
