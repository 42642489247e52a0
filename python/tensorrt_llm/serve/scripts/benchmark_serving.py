"""`python -m tensorrt_llm.serve.scripts.benchmark_serving ARGS` runs `trtllm-serve bench serve ARGS`.

The program is the one in a folder bin/ above this file, else the one on PATH.
"""
import os
import pathlib
import shutil
import sys


def main():
    above = (folder / "bin" / "trtllm-serve" for folder in pathlib.Path(__file__).resolve().parents)
    program = next((str(p) for p in above if os.access(p, os.X_OK)), None) or shutil.which("trtllm-serve")
    if program is None:
        sys.exit("error: no trtllm-serve in a folder bin/ above %s and none on PATH; build sluice or add its bin folder to PATH" % __file__)
    os.execv(program, ["trtllm-serve", "bench", "serve", *sys.argv[1:]])


if __name__ == "__main__":
    main()
