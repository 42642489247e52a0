"""A sample of the faults that tests/robustness/test_thread_faults.py injects: one server for each kind of thread."""
import pytest
from faults import shim_environment
from start_faults import fail_each_at_start
from thread_faults import fail_each

FEW = 3


@pytest.fixture(scope="module")
def fault_shim(tmp_path_factory):
    return shim_environment(tmp_path_factory.mktemp("shim"))


@pytest.mark.parametrize("name, thread, call", [
    ("adapters", "adapters", "new"), ("disk tier", "kv-disk", "new"), ("disk tier", "kv-disk", "system"),
    ("media", "media-fetch", "new"), ("shadow", "relay", "new")])
def test_f01_a_few_calls_of_a_thread_fail(fault_shim, tmp_path, name, thread, call):
    tried, _ = fail_each(fault_shim, tmp_path, name, thread, call, FEW)
    assert tried


@pytest.mark.parametrize("name, thread, call", [("ranks", "rank-1", "new"), ("batch", "batch", "new"), ("digest", "digest", "new")])
def test_f01_a_few_calls_of_a_thread_at_start_fail(fault_shim, tmp_path, name, thread, call):
    tried, _ = fail_each_at_start(fault_shim, tmp_path, name, thread, call, FEW)
    assert tried
