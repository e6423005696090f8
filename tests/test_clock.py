"""The clock jumps while a run trains: durations, saves by the clock and the log go on."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from common.run.nvlog import read_log
from tests.recipe import ENVIRONMENT, flags, start, wait_for_epoch_1

pytestmark = pytest.mark.slow
FAKETIME = sorted(Path("/usr/lib").glob("**/libfaketime.so.1"))


DAY = 86_400.0  # seconds


def wait_for_records(process: subprocess.Popen[str], folder: Path, days: int) -> None:
    """Wait until a run has logged steps with a clock that is so many days ahead."""
    deadline = time.monotonic() + 100
    while abs(float(read_log(folder / "nvlog.json")[-1]["timestamp"]) - time.time() - days * DAY) > DAY / 2:
        assert process.poll() is None and time.monotonic() < deadline, days
        time.sleep(0.1)


@pytest.mark.skipif(not FAKETIME, reason="libfaketime is not installed: apt-get install faketime")
def test_a_clock_that_jumps_changes_no_duration(tmp_path: Path) -> None:
    offset = tmp_path / "offset"
    offset.write_text("+0")
    fake = {"LD_PRELOAD": str(FAKETIME[0]), "FAKETIME_TIMESTAMP_FILE": str(offset), "FAKETIME_NO_CACHE": "1"}
    fake["FAKETIME_DONT_FAKE_MONOTONIC"] = "1"
    words = [*flags("WaveGlow", tmp_path / "out"), "--epochs", 10**5, "--checkpoint-every-minutes", 100]
    process = start(sys.executable, "train.py", *words, environment=ENVIRONMENT | fake)
    wait_for_epoch_1(process, tmp_path / "out")
    for days in (20, -20, 3):
        offset.write_text(f"{days:+}d")
        wait_for_records(process, tmp_path / "out", days)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    assert "still in mid-epoch" not in out  # no save by the clock
    records = read_log(tmp_path / "out" / "nvlog.json")
    stamps = [float(record["timestamp"]) for record in records]
    assert max(stamps) - min(stamps) > 39 * DAY  # the jumps took place
    elapsed = [float(record["elapsedtime"]) for record in records]
    assert elapsed == sorted(elapsed) and elapsed[-1] < 600
    seconds = [record["data"]["train_iter_time"] for record in records if "train_iter_time" in record.get("data", {})]
    assert len(seconds) >= 5 and all(0 < value < 60 for value in seconds)
