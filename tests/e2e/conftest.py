import signal

import pytest

from serving import ABACUS, serving

# Under nohup, SIGHUP is ignored, and processes that the tests start would inherit this.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: tens of seconds; `make test-slow` runs it, `make test` does not")


@pytest.fixture(scope="session")
def abacus():
    """One server with the bundled model, for all tests that need no special flags."""
    with serving(ABACUS, "--max-model-len", 4096, "--max-num-seqs", 64, "--enable-server-load-tracking") as server:
        yield server
