import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))


@pytest.fixture(scope="session")
def fault_shim(tmp_path_factory):
    from faults import shim_environment  # in the folder that was just added to the path

    return shim_environment(tmp_path_factory.mktemp("shim"))
