"""The tests of ranks detect mistakes: they fail with each mutant, a source with a known mistake."""
import pytest
from mutants import BUILD, MUTANTS, Workshop, run_tests


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("mutants"))


@pytest.mark.parametrize("program, tests", sorted({(mutant.program, mutant.tests) for mutant in MUTANTS}))
def test_without_a_mistake_the_tests_pass(program, tests):
    code, said = run_tests(BUILD / "bin" / program, tests)
    assert code == 0 and "[  PASSED  ]" in said, said[-2000:]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mistake_is_noticed(workshop, mutant):
    code, said = run_tests(workshop.build(mutant), mutant.tests)
    assert code != 0, "the tests do not notice: %s" % said[-2000:]
