import signal

import pytest

from serving import ABACUS, serving

# Under nohup it is ignored, in what is started from here too.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: tens of seconds; `make test-slow` runs it, `make test` does not")


@pytest.fixture(scope="session")
def abacus():
    """One server with the bundled model, for all tests that need no flags of their own."""
    with serving(ABACUS, "--max-model-len", 4096, "--max-num-seqs", 64, "--enable-server-load-tracking") as server:
        yield server
