"""The list of mutants fits the source: each text to replace occurs once in its file, and each test exists."""

from __future__ import annotations

from tests.mutants import ROOT, read_mutants


def test_each_mutant_has_one_place_and_its_tests() -> None:
    mutants = read_mutants()
    assert len(mutants) > 400
    misfits = [str(mutant) for mutant in mutants if (ROOT / mutant.file).read_text().count(mutant.old) != 1]
    assert misfits == [], "these lines have changed: change tests/mutants.txt with them"
    tests = {test.partition("[")[0] for mutant in mutants for test in mutant.tests}
    files = {test: test.partition("::")[::2] for test in tests}
    gone = [test for test, (file, name) in files.items() if f"def {name}" not in (ROOT / file).read_text()]
    assert gone == [], "these tests have other names: change tests/mutants.txt with them"
