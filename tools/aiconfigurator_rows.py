#!/usr/bin/env python3
"""Predicts the held-out rows of tests/data/simulation/published.csv with AIConfigurator, for the table of docs/simulation.md.

Run it in an environment with `pip install aiconfigurator==0.12.0`. Prints the median of the relative errors by device and model.
"""
import csv
import logging
import pathlib
import statistics
import warnings

DATA = pathlib.Path(__file__).resolve().parents[1] / "tests" / "data" / "simulation"
SYSTEMS = {"H100": "h100_sxm", "H200": "h200_sxm", "B200": "b200_sxm"}


def rows():
    with (DATA / "published.csv").open() as file:
        yield from csv.DictReader(line for line in file if not line.startswith("#"))


def main():
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    from aiconfigurator.cli.api import cli_estimate
    errors, refused = {}, 0
    for row in rows():
        if row["set"] != "held" or row["device"] not in SYSTEMS:
            continue
        mean = 1 - float(row["spread"]) / 2
        options = {"kvcache_quant_mode": "fp8"} if "llama" in row["model"] else {}
        try:
            found = cli_estimate(model_path=str(DATA / row["model"]), system_name=SYSTEMS[row["device"]], backend_name="vllm",
                                 isl=round(float(row["input"]) * mean), osl=round(float(row["output"]) * mean),
                                 batch_size=int(row["concurrency"]), tp_size=int(row["tp"]), **options)
        except RuntimeError:  # aiconfigurator reports that the model does not fit
            refused += 1
            continue
        pair = abs(found.ttft / float(row["ttft_ms"]) - 1), abs(found.tpot / float(row["tpot_ms"]) - 1)
        errors.setdefault((row["device"], row["model"]), []).append(pair)
    for (device, model), pairs in sorted(errors.items()):
        ttft, tpot = (100 * statistics.median(values) for values in zip(*pairs, strict=True))
        print("%s, %s: %d rows, TTFT %.1f %%, TPOT %.1f %%" % (device, model, len(pairs), ttft, tpot))
    print("%d rows were refused" % refused)


if __name__ == "__main__":
    main()
