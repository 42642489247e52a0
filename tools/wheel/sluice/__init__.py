"""Runs the program that lies in this package: `sluice`, or the same under the name vllm or trtllm-serve."""
import os
import pathlib
import sys


def execute(name):
    """Becomes the program, started as `name` with this process's arguments."""
    program = pathlib.Path(__file__).resolve().parent / "bin" / "sluice"
    if not os.access(program, os.X_OK):
        sys.exit("error: %s is not there or not executable; install the wheel of sluice anew" % program)
    os.execv(program, [name, *sys.argv[1:]])


def main():
    execute("sluice")


def vllm():
    execute("vllm")


def trtllm_serve():
    execute("trtllm-serve")
