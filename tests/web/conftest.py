import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]

from browser import chromium  # noqa: E402
from serving import ABACUS, serving  # noqa: E402


@pytest.fixture(scope="session")
def browser():
    with chromium() as one:
        yield one


@pytest.fixture(scope="session")
def server():
    with serving(ABACUS, "--max-model-len", 4096, "--enable-prompt-tokens-details") as one:
        yield one
