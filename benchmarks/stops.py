"""Stop commands at random moments, then resume them: the trials behind docs/reliability.md.

    python -m benchmarks.stops --trials 200 --log stops.jsonl    # the same command goes on after the last trial in the log

A trial stops a command after a random share of the time that it takes undisturbed: with a signal to its process, its group, a rank,
a loader or all of them, or with a disk that fills up or becomes read-only (as root; /dev/shm has 4 MB). What was asked to stop and
has not ended after ten seconds is killed, as `docker stop` does, and counts as late. Every file must be readable, no process left,
and the command, started again, end with the same bits.
Two commands may share the trials: --first 100 --log others.jsonl does the second half, and the joined logs give the table.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from common.arguments import positive
from common.checkpoint.files import load_checkpoint
from common.checkpoint.tensors import checksum
from common.errors import DataError, exit_on_user_error
from common.parser import Parser
from common.progress import show_progress
from studio.plan.file import write_plan
from studio.project import Project
from studio.train.progress import RunLog

ROOT = Path(__file__).resolve().parent.parent
PATIENCE, GIVEN = 10.0, 300.0  # seconds to end after a request, and after what is no request
SMALL, APART = 8 * 2**20, "STOPS_APART"  # bytes of a disk; in the environment if /dev/shm and mounts are our own
REQUESTS = ("SIGTERM", "SIGINT", "SIGHUP")
SIGNALS, TARGETS = (*REQUESTS, "SIGQUIT", "SIGKILL"), ("main", "group", "rank", "loader", "all")
DISKS = ("full disk", "read-only folder")
RUN = (
    "--training-files FOLDER/t.txt --validation-files FOLDER/v.txt --output FOLDER/out --resume-from-last "
    "--batch-size 2 --seed 1 --cpu --n-mel-channels 10 --epochs 4 --epochs-per-validation 2 --checkpoint-every-minutes 0.02"
)
REPORT = "--evaluate-every 2 --evaluate-lines 4 --evaluate-without asr mos likeness --best-by"
TACOTRON2 = (
    f"train.py -m Tacotron2 {RUN} {REPORT} coverage --symbols-embedding-dim 16 --encoder-embedding-dim 16 --prenet-dim 16 "
    "--attention-rnn-dim 24 --attention-dim 8 --decoder-rnn-dim 24 --postnet-embedding-dim 16 --max-decoder-steps 40"
)
# What is stopped: words for Python. All but the last ones save when they are asked to stop, and go on from there.
JOBS = {
    "Tacotron 2 with reports": TACOTRON2,
    "WaveGlow with 2 loaders and reports": f"train.py -m WaveGlow {RUN} {REPORT} mel_distance --flows 4 --wn-channels 8 "
    "--wn-layers 2 --segment-length 4096 --num-workers 2",
    "pulse-noise with a loader": f"train.py -m PulseNoise {RUN} --num-workers 1",
    "Tacotron 2 on 2 processes with loaders": f"-m multiproc --nproc 2 {TACOTRON2} --num-workers 1",
    "sharpening": "-m scripts.sharpen_mels voice/tacotron2.safetensors FOLDER/t.txt -o FOLDER/out/sharp.pt --cpu --steps 20",
    "studio.train": "-m studio.train out --projects FOLDER",
    "studio.prepare": "-m studio.prepare FOLDER/recordings --name out --projects FOLDER",
    "evaluation": "evaluate.py -i FOLDER/v.txt -o FOLDER/out --cpu --without asr mos likeness",
    "export": "-m exports torchscript -o FOLDER/out",
}
REPEATED = ("studio.prepare", "evaluation", "export")


def start(job: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start a job in a session of its own; what it says of errors is in FOLDER/err."""
    argv = [sys.executable, *JOBS[job].replace("FOLDER", str(folder)).split()]
    with (folder / "err").open("wb") as err:
        return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=err, start_new_session=True)


def members(folder: Path) -> list[psutil.Process]:
    """List the live processes of a command, whose words name its folder; children that were forked have the same words."""
    alive = [one for one in psutil.process_iter(["cmdline", "status"]) if one.info["status"] != psutil.STATUS_ZOMBIE]
    return [one for one in alive if str(folder) in " ".join(one.info["cmdline"] or ())]


def read_steps(folder: Path) -> tuple[int, int, int]:
    """Return the steps in a log, those of the newest checkpoint, and the number of unreadable files."""
    saved, unreadable = [0], 0
    for path in [*folder.rglob("*.pt"), *folder.rglob("*.safetensors")]:
        try:
            saved.append(load_checkpoint(path).get("iteration", 0))
        except DataError:
            unreadable += path.exists()
    return RunLog.read(next(folder.rglob("nvlog.json"), folder / "nvlog.json")).step, max(saved), unreadable


def digest(folder: Path) -> str:
    """Digest the last and the best weights, and the names of other results; other saves depend on the time."""
    named = sorted(path.name for path in folder.rglob("*") if path.suffix in (".wav", ".tsv", ".html", ".md"))
    found = dict.fromkeys(named)
    for path in sorted(path for path in folder.rglob("*.pt") if path.stem.endswith(("last", "best", "sharp"))):
        checkpoint = load_checkpoint(path)
        found[path.name] = checksum(checkpoint.get("ema_state_dict") or checkpoint["state_dict"], {})
    return json.dumps(found)


@contextlib.contextmanager
def workplace(name: str, is_disk: bool) -> Iterator[Path]:
    """Make a folder with what a job needs; FOLDER/out is a small disk of its own if it is to fail."""
    folder = Path(tempfile.mkdtemp(prefix="stops-"))
    rows = (ROOT / "filelists" / "clock_audio_text_train_filelist.txt").read_text().splitlines()
    (folder / "t.txt").write_text("".join(f"{ROOT}/{row}\n" for row in rows[:6]))
    (folder / "v.txt").write_text("".join(f"{ROOT}/{row}\n" for row in rows[6:14]))
    (folder / "out").mkdir()
    (folder / "recordings").mkdir()
    for path, text in (row.split("|") for row in rows[:4]):
        shutil.copy(ROOT / path, folder / "recordings")
        (folder / "recordings" / f"{Path(path).stem}.txt").write_text(text)
    try:
        if is_disk:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", folder / "out"], check=True)
        if name == "studio.train":  # whose plan is the trials' Tacotron 2, and sharpening
            project = Project(name="out", projects=folder)
            project.training_list.parent.mkdir()
            project.training_list.symlink_to(folder / "t.txt")
            project.validation_list.symlink_to(folder / "v.txt")
            words = TACOTRON2.replace("FOLDER/out", str(project.run("Tacotron2"))).replace("FOLDER", str(folder))
            flags = {flag: values or True for flag, *values in map(str.split, words.split(" --")[1:])}
            write_plan(project.plan, {"Tacotron2": flags, "studio": {"sharpen_minutes": 0.1}})
        yield folder
    finally:
        subprocess.run(["kill", "-9", *(str(one.pid) for one in members(folder))], capture_output=True, check=False)
        if is_disk:
            subprocess.run(["umount", "--lazy", folder / "out"], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def strike(event: str, target: str, folder: Path, main: int) -> None:
    """Send the signal, or let the disk fail."""
    if event == "read-only folder":
        subprocess.run(["mount", "-o", "remount,ro", folder / "out"], check=True)
    elif event == "full disk":
        with contextlib.suppress(OSError), (folder / "out" / "filler").open("wb") as file:
            file.write(bytes(SMALL))
    else:
        everyone = {process.pid: process for process in members(folder)}
        ranks = [pid for pid, one in everyone.items() if one.ppid() == main]
        loaders = [pid for pid, one in everyone.items() if one.ppid() in ranks] or ranks
        victims = {"rank": ranks[:1], "loader": loaders[-1:], "all": list(everyone), "group": [-main]}
        for pid in victims.get(target) or [main]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.Signals[event])


def wait(process: subprocess.Popen[bytes], folder: Path, seconds: float) -> list[str]:
    """Wait for the end of a stopped command, and kill what is left of it. Returns what was wrong."""
    faults, deadline = [], time.monotonic() + PATIENCE
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        faults.append("late")
        process.kill()
        process.wait()
    while (left := members(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    subprocess.run(["kill", "-9", *(str(one.pid) for one in left)], capture_output=True, check=False)
    faults += ["processes left"] * bool(left) + ["traceback"] * (b"Traceback" in (folder / "err").read_bytes())
    return faults


def trial(event: str, target: str, name: str, share: float, whole: dict[str, Any]) -> dict[str, Any]:
    """Stop a job at a share of its time, look at what is left, and run it to its end."""
    with workplace(name, event in DISKS) as folder:
        process = start(name, folder)
        time.sleep(share * whole["seconds"])
        began, runs = time.monotonic(), process.poll() is None
        asked = event in REQUESTS and target in ("main", "group", "all")
        strike(event, target, folder, process.pid)
        faults = wait(process, folder, PATIENCE if asked else GIVEN)
        seconds = round(time.monotonic() - began, 1)
        if event in DISKS:
            subprocess.run(["mount", "-o", "remount,rw", folder / "out"], check=True)
            (folder / "out" / "filler").unlink(missing_ok=True)
        steps, saved, unreadable = read_steps(folder / "out")
        faults += [f"{steps - saved} steps lost"] * (asked and name not in REPEATED and runs and steps > saved)
        faults += ["unreadable files"] * bool(unreadable)
        if name in REPEATED and process.returncode:
            shutil.rmtree(folder / "out", ignore_errors=True)
        ended = start(name, folder).wait() == 0 or b"exists" in (folder / "err").read_bytes()
        faults += ["other bits"] * (not ended or digest(folder / "out") != whole["digest"])
        found = {"job": name, "event": event, "target": target, "at": share, "seconds": seconds}
        return found | {"code": process.returncode, "faults": faults}


def undisturbed(name: str) -> dict[str, Any]:
    """Run a job to its end; return its seconds and the digest of what it wrote."""
    with workplace(name, False) as folder:
        began = time.monotonic()
        if start(name, folder).wait():
            raise DataError(f"{name} fails undisturbed: {(folder / 'err').read_text()}")
        return {"whole": name, "seconds": time.monotonic() - began, "digest": digest(folder / "out")}


def table(outcomes: list[dict[str, Any]]) -> str:
    """Return the counts by job and by event as a table."""
    lines = ["| what, or by what | trials | most seconds to the end | faults |", "|---|---|---|---|"]
    for key in dict.fromkeys(row[name] for name in ("job", "event") for row in outcomes):
        mine = [row for row in outcomes if key in (row["job"], row["event"])]
        faults = Counter(fault for row in mine for fault in row["faults"])
        words = ", ".join(f"{count} {fault}" for fault, count in faults.items()) or "none"
        lines.append(f"| {key} | {len(mine)} | {max(row['seconds'] for row in mine):.1f} | {words} |")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Run the trials, each a line in the log, and print the table. Returns 1 after a fault."""
    parser = Parser(prog="python -m benchmarks.stops", description=__doc__)
    parser.add_argument("--trials", type=positive, default=200, help="number of trials in all")
    parser.add_argument("--first", type=int, default=0, help="number of the first trial in --log")
    parser.add_argument("--log", type=Path, default=Path("stops.jsonl"), help="file of the trials so far")
    args = parser.parse_args(argv)
    os.environ["OMP_NUM_THREADS"] = "1"
    if os.geteuid() == 0 and APART not in os.environ:
        mount = 'mount -t tmpfs -o size=4m tmpfs /dev/shm && exec "$@"'
        command = ["unshare", "-m", "bash", "-c", mount, "_", sys.executable, "-m", "benchmarks.stops"]
        os.execvpe("unshare", [*command, *(sys.argv[1:] if argv is None else argv)], os.environ | {APART: "1"})
    lines = [json.loads(line) for line in (args.log.read_text() if args.log.exists() else "").splitlines()]
    whole = {line["whole"]: line for line in lines if "whole" in line}
    outcomes = [line for line in lines if "whole" not in line]
    numbers = range(args.first + len(outcomes), args.trials)
    with args.log.open("a") as log:
        for number in show_progress(numbers, len(numbers), "stops", "trial"):
            draw, job = random.Random(number), list(JOBS)[number % len(JOBS)]
            if job not in whole:
                whole[job] = undisturbed(job)
                print(json.dumps(whole[job]), file=log, flush=True)
            event = draw.choice((*SIGNALS, *SIGNALS, *(DISKS if APART in os.environ else ())))
            outcomes.append(trial(event, draw.choice(TARGETS), job, draw.uniform(0.05, 0.95), whole[job]))
            print(json.dumps(outcomes[-1]), file=log, flush=True)
    print(table(outcomes))
    return int(any(row["faults"] for row in outcomes))


if __name__ == "__main__":
    with exit_on_user_error():
        sys.exit(main())
