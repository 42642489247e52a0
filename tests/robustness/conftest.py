import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))


@pytest.fixture(scope="session")
def fault_shim(tmp_path_factory):
    """The environment that loads fault_shim.cc before the C library."""
    library = tmp_path_factory.mktemp("shim") / "fault_shim.so"
    subprocess.run(["g++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(library),
                    str(HERE / "fault_shim.cc"), "-ldl"], check=True)
    return {"LD_PRELOAD": str(library)}
