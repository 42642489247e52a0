#!/usr/bin/env python3
"""Reports which decoders of transformers can be loaded: the last part of docs/models.md, which `make docs` writes.

    tools/decoder_types.py [build/release/bin/sluice]

Runs `sluice inspect` on each configuration of tests/data/configs/decoder_types.json, which tools/checkpoints/make_decoder_types.py wrote.
If the command can plan the memory, the decoder can be loaded; otherwise its error names the missing operators.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent


def inspect(program, config):
    """Describes what is missing; None if nothing is."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        run = subprocess.run([program, "inspect", folder, "--json"], capture_output=True, text=True, check=False)
    if not run.stdout.startswith("{"):
        sys.exit(f"{config['model_type']}: sluice inspect ended with {run.returncode}: {run.stderr}")
    report = json.loads(run.stdout)
    if report.get("memory"):
        return None
    missing = report.get("missing_operators") or []
    if missing:
        return "; ".join(missing)
    refusal = report["refusal"].removeprefix(f"{folder}/config.json: ")
    # The error is only about the architecture's name: no missing operator is known.
    return "no missing operator is known; the architecture needs its own reader" if re.match(r"architecture \S+ (with model_type \S+ )?is not supported", refusal) else refusal


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/release/bin/sluice")
    data = json.loads((ROOT / "tests/data/configs/decoder_types.json").read_text())
    found = {name: inspect(program, config) for name, config in data["types"].items()}
    loads = [name for name, missing in found.items() if missing is None]
    print(f"""
## Decoders of transformers

`tools/decoder_types.py` generates this list of the decoders among the types of AutoModelForCausalLM
in transformers {data["transformers"]}. Each type is tested with its default configuration, or
with a published one if the default does not describe a complete model. {len(loads)} of {len(found)} types load:

{", ".join(f"`{name}`" for name in loads)}

| type that does not load | missing, according to `sluice inspect` |
|---|---|""")
    for name, missing in found.items():
        if missing is not None:
            print(f"| `{name}` | {missing} |")


if __name__ == "__main__":
    main()
