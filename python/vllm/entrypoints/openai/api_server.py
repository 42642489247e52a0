"""`python -m vllm.entrypoints.openai.api_server --model M ARGS`, the older form of `vllm serve M ARGS`, runs that.

The program is the one in a folder bin/ above this file, else the one on PATH.
"""
import os
import pathlib
import shutil
import sys


def main():
    above = (folder / "bin" / "vllm" for folder in pathlib.Path(__file__).resolve().parents)
    program = next((str(p) for p in above if os.access(p, os.X_OK)), None) or shutil.which("vllm")
    if program is None:
        sys.exit("error: no vllm in a folder bin/ above %s and none on PATH; build sluice or add its bin folder to PATH" % __file__)
    os.execv(program, ["vllm", "serve", *sys.argv[1:]])


if __name__ == "__main__":
    main()
