import pytest

from serving import ABACUS, serving


@pytest.fixture(scope="session")
def abacus():
    """One server with the bundled model, for all tests that need no flags of their own."""
    with serving(ABACUS, "--max-model-len", 4096, "--max-num-seqs", 64, "--enable-server-load-tracking") as server:
        yield server
