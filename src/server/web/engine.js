// The live view: shows /metrics, read once a second while the page is visible.
import {call} from "./api.js";
import {el} from "./dom.js";
import {LinesView} from "./lines.js";
import {gained, labelOf, meanBetween, parseMetrics, quantileBetween, valueOf} from "./metrics.js";
import {lineOfModel, modelsOf} from "./models.js";
import {Sparkline} from "./sparkline.js";
import {lineOfTier, tiersOf} from "./tiers.js";

const intervalMs = 1000;
const slots = 120;
// Quantiles and hit rates cover this many seconds.
const windowS = 30;
// Points of the latency lines are means over this many seconds: some seconds have no first token.
const recentS = 5;

const names = {
  running: "vllm:num_requests_running",
  waiting: "vllm:num_requests_waiting",
  generated: "vllm:generation_tokens_total",
  prompt: "vllm:prompt_tokens_total",
  cacheUse: "vllm:kv_cache_usage_perc",
  cacheQueries: "vllm:prefix_cache_queries_total",
  cacheHits: "vllm:prefix_cache_hits_total",
  first: "vllm:time_to_first_token_seconds",
  between: "vllm:inter_token_latency_seconds",
  resident: "process_resident_memory_bytes",
  held: "sluice:request_memory_used_bytes",
  steps: "vllm:iteration_tokens_total_count",
  stepTokens: "vllm:iteration_tokens_total_sum",
  finished: "vllm:request_success_total",
  preempted: "vllm:num_preemptions_total",
  started: "process_start_time_seconds",
  cacheInfo: "vllm:cache_config_info",
  simulation: "sluice:simulation_info",
};

const whole = (value) => value === null ? "–" : Math.round(value).toLocaleString("en");
const short = (value) => value === null ? "–" : value < 10 ? value.toFixed(1) : whole(value);
const percent = (value) => value === null ? "–" : `${(value * 100).toFixed(value > 0 && value < 0.1 ? 1 : 0)}`;

function milliseconds(seconds) {
  if (seconds === null) return "–";
  const value = seconds * 1000;
  return value < 10 ? value.toFixed(1) : whole(value);
}

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; value >= 1024 && i + 1 < units.length; ++i) value /= 1024;
  return [value < 10 && i > 0 ? value.toFixed(2) : value < 100 && i > 0 ? value.toFixed(1) : whole(value), units[i]];
}

function duration(seconds) {
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} days`;
}

const counted = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;

// Each card: a title, the names of its lines, and a function that computes its figures from readings (the last two and
// those of up to `recentS` and `windowS` ago): the lines' values, the big figure with its unit, and the small print.
const cards = [
  {title: "Requests", lines: ["running", "waiting"], figures({now}) {
    const running = valueOf(now, names.running);
    const waiting = valueOf(now, names.waiting);
    return {values: [running, waiting], big: [whole(running), "running"], small: `${whole(waiting)} waiting`};
  }},
  {title: "Tokens", lines: ["generated a second", "read a second"], figures({before, now, seconds}) {
    const rate = (name) => perSecond(gained(before, now, name), seconds);
    const [out, read] = [rate(names.generated), rate(names.prompt)];
    return {values: [out, read], big: [whole(out), "generated /s"], small: `${whole(read)} read /s`};
  }},
  {title: "KV cache", lines: ["share used", "prefix hit rate"], limit: 1, figures({past, now}) {
    const use = valueOf(now, names.cacheUse);
    const queries = gained(past, now, names.cacheQueries);
    const hits = queries ? gained(past, now, names.cacheHits) / queries : null;
    return {values: [use, hits], big: [percent(use), "% used"], small: `${percent(hits)} % prefix hits`};
  }},
  latencyCard("First token", names.first),
  latencyCard("Between tokens", names.between),
  {title: "Steps", lines: ["steps a second"], figures({before, now, seconds}) {
    const steps = gained(before, now, names.steps);
    const rate = perSecond(steps, seconds);
    const size = steps ? gained(before, now, names.stepTokens) / steps : null;
    return {values: [rate], big: [whole(rate), "/s"], small: `${short(size)} tokens a step`};
  }},
  {title: "Memory", lines: ["resident bytes"], figures({now}) {
    const resident = valueOf(now, names.resident);
    const [value, unit] = bytes(resident);
    return {values: [resident], big: [value, unit], small: `requests ${bytes(valueOf(now, names.held)).join(" ")}`};
  }},
];

function perSecond(count, seconds) {
  return count === null ? null : count / seconds;
}

function latencyCard(title, name) {
  return {title, lines: ["mean seconds"], figures({recent, past, now}) {
    const mean = meanBetween(past, now, name);
    const p95 = quantileBetween(past, now, name, 0.95);
    return {values: [meanBetween(recent, now, name)], big: [milliseconds(mean), "ms"], small: `p95 ${milliseconds(p95)} ms`};
  }};
}

class Card {
  constructor(definition) {
    this.definition = definition;
    this.history = definition.lines.map(() => []);
    this.picture = new Sparkline({slots, limit: definition.limit, lines: definition.lines.length});
    this.value = el("span", {class: "value"}, "–");
    this.unit = el("span", {class: "unit"});
    this.small = el("span", {class: "small"});
    this.root = el("section", {class: definition.lines.length > 1 ? "card two" : "card", "aria-label": definition.title},
                   el("h3", {}, definition.title),
                   el("p", {class: "figure"}, this.value, " ", this.unit, this.small), this.picture.root);
  }

  take(readings) {
    const {values, big, small} = this.definition.figures(readings);
    values.forEach((value, i) => {
      this.history[i].push(value);
      if (this.history[i].length > slots) this.history[i].shift();
    });
    [this.value.textContent, this.unit.textContent] = big;
    this.small.textContent = small;
    const described = this.definition.lines.map((line, i) => `${line}: ${plain(values[i])}`).join(", ");
    this.picture.draw(this.history, `${this.definition.title} over the last ${slots * intervalMs / 1000} seconds. Now ${described}`);
  }
}

const plain = (value) => value === null ? "none" : String(Number(value.toPrecision(3)));

export class EngineView {
  // `onstate(reachable)` is called after each reading.
  constructor(root, onstate) {
    this.onstate = onstate;
    this.path = "metrics";
    this.readings = [];
    this.cards = cards.map((card) => new Card(card));
    this.foot = el("p", {class: "note"});
    this.tiers = new LinesView(root, "Beyond the cache");
    this.models = new LinesView(root, "Models");
    root.append(...this.cards.map((card) => card.root), this.foot);
    this.timer = null;
    document.addEventListener("visibilitychange", () => this.#schedule(0));
  }

  // `path` of the text: it depends on the server's dialect.
  start(path) {
    this.path = path;
    this.#schedule(0);
  }

  #schedule(wait) {
    clearTimeout(this.timer);
    if (!document.hidden) this.timer = setTimeout(() => this.#read(), wait);
  }

  async #read() {
    const begin = performance.now();
    try {
      const text = await (await call(this.path)).text();
      this.#take(text, performance.now() / 1000);
      this.onstate(true);
    } catch {
      this.onstate(false);
    }
    this.#schedule(Math.max(100, intervalMs - (performance.now() - begin)));
  }

  #take(text, seconds) {
    const now = {...parseMetrics(text), seconds};
    const before = this.readings.at(-1);
    this.readings.push(now);
    while (this.readings[1] && seconds - this.readings[0].seconds > windowS) this.readings.shift();
    // After a pause or a restart of the server there is no earlier reading to compare with.
    const isComparable = before && seconds - before.seconds < 10 * intervalMs / 1000 &&
      valueOf(before, names.started) === valueOf(now, names.started);
    if (!isComparable) this.readings = [now];
    const readings = {before: isComparable ? before : now, past: this.readings[0], now,
                      recent: this.readings.find((reading) => seconds - reading.seconds <= recentS),
                      seconds: isComparable ? seconds - before.seconds : 1};
    for (const card of this.cards) card.take(readings);
    const size = (value) => bytes(value).join(" ");
    this.tiers.show(tiersOf(text).map((tier) => lineOfTier(tier, size)));
    this.models.show(modelsOf(text).map((model) => lineOfModel(model, size)));
    this.#showFoot(text, now);
  }

  #showFoot(text, now) {
    const up = Date.now() / 1000 - valueOf(now, names.started);
    const tokens = Number(labelOf(text, names.cacheInfo, "kv_cache_size_tokens"));
    const parts = [`up ${duration(Math.max(0, up))}`, counted(valueOf(now, names.finished), "answer"),
                   counted(valueOf(now, names.preempted), "preemption")];
    const devices = labelOf(text, names.simulation, "devices");
    if (devices) parts.unshift(`SIMULATED ${devices}: nothing is computed`);
    if (tokens > 0) parts.push(`cache of ${whole(tokens)} tokens`);
    this.foot.textContent = parts.join(" · ");
  }
}
