"""The command lines of the scripts that write test data, without the libraries that they need."""
import subprocess
import sys

import pytest

from serving import ROOT

SCRIPTS = sorted((ROOT / "tools" / "checkpoints").glob("make_*.py"))
# Runs a script with objects that accept everything in place of the libraries.
RUN = """
import importlib.abc, importlib.machinery, runpy, sys, unittest.mock

class Library(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        is_wanted = name.split(".")[0] in ("datasets", "huggingface_hub", "mistral_common", "numpy", "peft", "safetensors", "tokenizers", "torch", "transformers")
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_wanted else None
    def create_module(self, spec):
        module = unittest.mock.MagicMock(name=spec.name)
        module.__path__ = []
        return module
    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Library())
del sys.argv[0]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("words, code", [(["--help"], 0), (["--all", "folder"], 2)], ids=["help", "option"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_an_option_is_no_folder(tmp_path, script, words, code):
    result = subprocess.run([sys.executable, "-c", RUN, str(script), *words], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == code, result.stderr
    assert script.name in (result.stdout if code == 0 else result.stderr)
    assert not list(tmp_path.iterdir())
