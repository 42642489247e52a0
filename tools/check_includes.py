#!/usr/bin/env python3
"""Checks the include arrows: which folder of src/ may include which. Prints every include that is not in the table.

The table is the one in docs/architecture.md; a folder may always include itself. Also reports files that are too long, and types with
the same name in two headers (the linker would silently keep only one of their functions).
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1] / "src"
ARROWS = {
    "base": [],
    "tensor": ["base"],
    "hardware": ["base"],
    "device": ["tensor", "base"],
    "parallel": ["device", "tensor", "hardware", "base"],
    "kernels": ["device", "tensor", "hardware", "base"],
    "checkpoint": ["tensor", "base"],
    "hub": ["base"],
    "media": ["base"],
    "vision": ["media", "base"],
    "tokenizer": ["base"],
    "chat": ["tokenizer", "base"],
    "parsers": ["base"],
    "models": ["vision", "media", "kernels", "parallel", "device", "checkpoint", "tensor", "base"],
    "quantize": ["models", "kernels", "checkpoint", "tensor", "base"],
    "cache": ["base"],
    "events": ["cache", "base"],
    "speculation": ["base"],
    "scheduler": ["cache", "base"],
    "constraints": ["base"],
    "sampler": ["constraints", "kernels", "base"],
    "planner": ["scheduler", "checkpoint", "hardware", "base"],
    "simulation": ["planner", "scheduler", "models", "cache", "kernels", "device", "checkpoint", "tensor", "base"],
    "engine": ["vision", "media", "constraints", "speculation", "scheduler", "sampler", "simulation", "models", "cache", "kernels",
               "parallel", "device", "checkpoint", "tensor", "hardware", "base"],
    "receipt": ["sampler", "base"],
    "recording": ["engine", "constraints", "scheduler", "sampler", "models", "cache", "base"],
    "selftest": ["engine", "sampler", "quantize", "models", "kernels", "device", "checkpoint", "tensor", "hardware",
                 "base"],
    "tracing": ["base"],
    "server": ["receipt", "vision", "media", "tracing", "engine", "constraints", "chat", "parsers", "tokenizer", "device", "checkpoint",
               "base"],
    "client": ["base"],
    "shadow": ["server", "client", "engine", "tokenizer", "sampler", "base"],
    "eval": ["client", "chat", "tokenizer", "base"],
    "bench": ["client", "media", "chat", "tokenizer", "base"],
    "options": ["base"],
    "recipe": ["options", "planner", "base"],
}
ARROWS["cli"] = list(ARROWS)
# Sub-folders of src/server/api are called rooms. Files outside them (the dispatcher and the routes) may
# include all rooms.
API = "server/api/"
API_ROOMS = {
    "common": [],
    "guard": ["common"],
    "store": ["common"],
    "context": ["store", "guard", "common"],
    "request": ["context", "common"],
    "answer": ["request", "context", "guard", "common"],
    "openai": ["answer", "request", "context", "common"],
    "anthropic": ["answer", "request", "common"],
    "responses": ["openai", "answer", "request", "store", "common"],
    "pooling": ["answer", "request", "context", "common"],
}
# Files that only their own folder may include.
PRIVATE = re.compile(r"/internal/|_internal\.h$")
MAX_LINES = 1000
WATCHED_LINES = 800


def api_room(path):
    """The room of a path relative to src/; None if the path is in no room."""
    room = path[len(API):].split("/")[0] if path.startswith(API) else ""
    return room if room in API_ROOMS else None


bad = []
types = {}  # qualified name -> header
for path in sorted(ROOT.rglob("*")):
    if path.suffix not in (".h", ".cc", ".cu"):
        continue
    folder = path.relative_to(ROOT).parts[0]
    text = path.read_text()
    if folder not in ARROWS:
        bad.append("%s: folder %s is not in the table" % (path, folder))
        continue
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not found:
            continue
        target = found.group(1).split("/")[0]
        place = "%s:%d" % (path.relative_to(ROOT.parent), number)
        if "/" not in found.group(1) or not (ROOT / found.group(1)).exists():
            bad.append("%s: %s is no path from src/" % (place, found.group(1)))
        elif target != folder and target not in ARROWS[folder]:
            bad.append("%s: %s must not include %s" % (place, folder, target))
        room, other = api_room(str(path.relative_to(ROOT))), api_room(found.group(1))
        if room and not path.stem.endswith(("_test", "_fuzz", "_testing")) and found.group(1).startswith(API) and other != room \
                and other not in API_ROOMS[room]:
            bad.append("%s: server/api/%s must not include %s" % (place, room, found.group(1)))
        elif target != folder and PRIVATE.search(found.group(1)):
            bad.append("%s: %s is private to %s" % (place, found.group(1), target))
    if path.suffix == ".h":
        inside = []
        for opened, closed, name in re.findall(
                r"^namespace(?: (\S+))? \{$|^(\}  // namespace)|^(?:class|struct|enum class) (?:alignas\(\d+\) |SLUICE_\w+\(.*\) )?(\w+)[^;{]*\{",
                re.sub(r"^namespace \S+ \{\n[^{}]*\n\}$", "", text, flags=re.M), re.M):  # without forward declarations
            if not closed and not name:
                inside.append(opened)
            elif closed:
                inside.pop()
            else:
                first = types.setdefault("::".join([*inside, name]), path)
                if first != path:
                    bad.append("%s: %s is also defined in %s" % (path.relative_to(ROOT.parent), "::".join([*inside, name]),
                                                                 first.relative_to(ROOT.parent)))
    lines = text.count("\n")
    data = "data" in path.stem or "table" in path.stem
    if lines > (MAX_LINES if path.stem.endswith("_test") else WATCHED_LINES) and not data:
        bad.append("%s: %d lines; one idea a file" % (path.relative_to(ROOT.parent), lines))
for line in bad:
    print(line)
print("%d findings" % len(bad))
sys.exit(bool(bad))
