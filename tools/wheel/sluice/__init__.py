"""Runs the program in this package as `sluice`, or under the names vllm or trtllm-serve."""
import os
import pathlib
import sys


def execute(name):
    """Replaces this process by the program, started as `name` with this process's arguments."""
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
