"""Fixtures of every test: one thread, and random numbers that depend only on the test's name; the order of files; the report."""

import gc
import os
import re
import sys
import zlib
from collections import Counter
from pathlib import Path

import pytest
import torch

os.environ["MATPLOTLIBRC"] = str(Path(__file__).with_name("matplotlibrc"))
# PyTorch's compiler: no probe of the CPU's instructions, and no pool of processes, each of which imports PyTorch.
os.environ |= {"TORCHINDUCTOR_VEC_ISA_OK": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}

# Files that take longest, which start first: a long file at the end would keep one process busy while the others wait.
LONGEST = (
    "test_page", "exports/test_targets", "test_without_gpu", "test_speed", "train/test_command", "prepare/test_command",
    "test_scale", "test_multiproc", "test_train", "test_kills", "test_fast_ways", "test_hostile",
    "test_training_features", "test_full_disk",
)  # fmt: skip
EXTRA = re.compile(r"(?:requirements|tests)/[\w-]+\.txt")  # in the reason of a skip
DONE = pytest.StashKey[set[str]]()  # lines of --without
OWN_ENVIRONMENT = "requirements/triton.txt"  # an extra that is in no environment with the others


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options with which .ci/run divides the tests between two environments."""
    parser.addoption("--passed-to", type=Path, metavar="FILE", help="write the tests and files that passed")
    parser.addoption("--without", type=Path, metavar="FILE", help="leave out the tests and files in this file")
    parser.addoption("--require-extras", action="store_true", help="fail where a package of an extra is missing")


def pytest_report_header() -> str:
    """Say how long the suite takes."""
    return "all tests take about 8 minutes on two free cores, 13 with every extra; -m 'not slow' takes about 3"


class Report:
    """What this process is told of all tests: the first failure at once, and at the end the skips for want of each extra."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.failed = config, False
        self.passed, self.not_passed = list[str](), set[str]()  # ids of tests; files
        self.missing: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print the first failure, and count what is skipped."""
        if report.passed and report.when == "call":
            self.passed.append(report.nodeid)
        self.pytest_collectreport(report)

    def pytest_collectreport(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """The same for a module as a whole."""
        if not report.passed:
            self.not_passed.add(report.nodeid.partition("::")[0])
        if report.skipped and isinstance(report.longrepr, tuple):
            self.missing.update(EXTRA.findall(report.longrepr[2])[:1])
        if report.failed and not self.failed:
            self.failed = True
            terminal = self.config.get_terminal_writer()
            terminal.line(f"\nfirst failure, {report.nodeid}:\n{report.longreprtext}")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a line for each extra."""
        for extra, count in sorted(self.missing.items()):
            terminalreporter.write_line(f"skipped without {extra}: {count} (tests, or files of tests)")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write --passed-to, and fail for --require-extras."""
        if path := self.config.getoption("passed_to"):
            files = {name.partition("::")[0] for name in self.passed} - self.not_passed
            path.write_text("\n".join(map(repr, [*files, *self.passed])))
        wanted = [extra for extra in self.missing if extra.startswith("requirements/") and extra != OWN_ENVIRONMENT]
        if self.config.getoption("require_extras") and wanted and not session.exitstatus:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_configure(config: pytest.Config) -> None:
    """Report in the process that runs the tests or hands them out. Read --without in each."""
    if path := config.getoption("without"):
        config.stash[DONE] = set(path.read_text().splitlines())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Report(config))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files whose tests are all in --without, unread: importing them takes most of a minute."""
    done = config.stash.get(DONE, set())
    return True if done and repr(collection_path.relative_to(config.rootpath).as_posix()) in done else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first, then all others with slow tests; `--dist loadfile` hands files out in this order.

    Tests marked `gpu` are skipped without a GPU; those of --without are left out.
    """
    if done := config.stash.get(DONE, None):
        config.hook.pytest_deselected(items=[item for item in items if repr(item.nodeid) in done])
        items[:] = [item for item in items if repr(item.nodeid) not in done]
    if not torch.cuda.is_available():
        for item in (item for item in items if item.get_closest_marker("gpu")):
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))
    slow = {item.path for item in items if item.get_closest_marker("slow")}

    def place(item: pytest.Item) -> tuple[int, bool]:
        name = item.path.with_suffix("").as_posix()
        first = next((number for number, ending in enumerate(LONGEST) if name.endswith(ending)), len(LONGEST))
        return first, item.path not in slow

    items.sort(key=place)  # stable: the order within a file stays


def pytest_collection_finish() -> None:
    """Keep all that is imported by now out of garbage collections, each of which would walk it: a tenth of the fast tests' time."""
    gc.freeze()


@pytest.fixture(autouse=True)
def one_thread():
    """Use one thread: with tensors this small, several threads are slower, above all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def quick_switches():
    """Let threads take turns at almost every step of Python, so that a missing lock shows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(autouse=True)
def own_seed(request):
    """Seed by the test's name, so that its numbers do not depend on other tests."""
    torch.manual_seed(zlib.crc32(request.node.nodeid.encode()))
