"""Projects for tests: as studio.prepare writes them, of a few clips of the embedded corpus."""

import json
import shutil
from pathlib import Path
from typing import Any

import soundfile

from common.checkpoint.files import load_checkpoint, save_copy
from common.data.sources import SourceFile
from common.options import from_options
from common.run.nvlog import NvLog
from common.training.arguments import NOTES, STUDIO
from common.training.options import TrainOptions
from models import REGISTRY
from studio.plan.file import SHARED, Group, Plan, read_plan, write_plan
from studio.prepare.arguments import CuttingConfig
from studio.prepare.clips import CutRecording, CuttingJob, cut_recording
from studio.prepare.review import ClipRow, store_proposals, write_review
from studio.project import Project
from synthesizer import EMBEDDED
from tests.recipe import MODELS, ROOT, SHORT_CLIPS, train_tiny_model

STEPS = 2  # of an epoch, in logs
FLAGS = {
    "warm_start": str(EMBEDDED / "tacotron2.safetensors"),
    "batch_size": 2,
    "epochs": 4,
    "learning_rate": 1e-3,
    "lr_schedule": "cosine",
    "evaluate_lines": 2,
    "evaluate_without": ["asr", "mos", "likeness"],
    "best_by": "coverage",
    "early_stop_patience": 50,
}
EVERY = ("epochs_per_validation", "evaluate_every", "epochs_per_checkpoint")
OPTIONS = from_options(TrainOptions, FLAGS | {"warm_start": None})


def plan_groups(project: Project, models: dict[str, Group], every: int = 2, **studio: float | None) -> dict[str, Group]:
    """The contents of plan.json, with a report every so many epochs."""
    lists = {"training_files": str(project.training_list), "validation_files": str(project.validation_list)}
    shared = {"dataset_path": str(project.root), **lists, "seed": 1, "cpu": True}
    plain = dict.fromkeys(EVERY, every) | {"resume_from_last": True}
    groups = {name: {"output": str(project.run(name)), **plain, **flags} for name, flags in models.items()}
    return {SHARED: shared, **groups, STUDIO: {"threads": 1, **studio}}


def store_plan(project: Project, models: dict[str, Group], notes: Group | None = None, **settings: Any) -> Plan:
    write_plan(project.plan, plan_groups(project, models, **settings) | {NOTES: notes or {}})
    return read_plan(project.plan)


def make_project(project: Project, training: int = 5, validation: int = 2) -> Project:
    rows = (ROOT / "filelists" / "clock_audio_text_train_filelist.txt").read_text().splitlines()
    for folder in (project.clips, project.training_list.parent):
        folder.mkdir(parents=True)
    lines = []
    for number in SHORT_CLIPS[: training + validation]:
        path, text = rows[number - 1].split("|")
        audio, rate = soundfile.read(ROOT / path)
        soundfile.write(project.clips / f"{number}.wav", audio, rate, subtype="PCM_16")
        lines.append(f"clips/{number}.wav|{text}\n")
    project.training_list.write_text("".join(lines[:training]))
    project.validation_list.write_text("".join(lines[training:]))
    return project


def cut(path: Path, folder: Path, **options: object) -> CutRecording | str:
    """Cut a recording into folder/clips, with its record in folder/records; the problem of one that cannot be used."""
    (folder / "clips").mkdir(parents=True, exist_ok=True)
    source = SourceFile(path, path.name, path.stem)
    return cut_recording(CuttingJob(source, None, CuttingConfig(**options), folder / "records", folder / "clips"))


def add_runs(project: Project) -> None:
    """Add runs of the tiny models: epoch 0, and epoch 1 as the last and the best one."""
    for name in MODELS:
        source, folder = train_tiny_model(name), project.run(name)
        folder.mkdir(parents=True)
        for path in ("0.pt", "1.pt", "best.pt"):
            shutil.copy(source, folder / f"checkpoint_{name}_{path}")
        (folder / f"checkpoint_{name}_last.pt").symlink_to(f"checkpoint_{name}_1.pt")


def add_voice(project: Project) -> None:
    project.voice.mkdir(parents=True)
    for name in MODELS:
        shutil.copy(train_tiny_model(name), project.voice / f"{REGISTRY[name].flag}.pt")
    (project.voice / "config.json").write_text(json.dumps({"name": project.name, "vocoder": "griffin-lim"}))


def add_spoken_voice(project: Project) -> None:
    """Add a finished voice that speaks: the embedded one without its postnet's last layer, as of epoch 3."""
    project.voice.mkdir(parents=True)
    checkpoint = load_checkpoint(EMBEDDED / "tacotron2.safetensors")
    weights = {name: value.clone() for name, value in checkpoint["state_dict"].items()}
    weights["postnet.convolutions.2.1.weight"].zero_()
    save_copy(project.voice / "tacotron2.safetensors", checkpoint | {"epoch": 3, "state_dict": weights})
    shutil.copy(EMBEDDED / "waveglow.safetensors", project.voice)
    (project.voice / "config.json").write_text(json.dumps({"name": project.name, "vocoder": "griffin-lim"}))


def add_review_table(project: Project) -> list[ClipRow]:
    """Add the table of the clips and the files beside it, as studio.prepare writes them; the first clip has a fault."""
    lists = [path.read_text().splitlines() for path in (project.training_list, project.validation_list)]
    rows = []
    for number, line in enumerate([*lists[0], *lists[1]]):
        path, text = line.split("|")
        times = (f"{10 * number}.000", f"{10 * number + 2}.000")
        faults = "words (50 % wrong)" if number == 0 else ""
        use = "no" if faults else "yes"
        rows.append(ClipRow(use, Path(path).stem, "talk.wav", *times, text, "NAME.txt", "words", "0.500", faults))
    write_review(project.review, rows)
    store_proposals(project.proposals, rows)
    settings = {"recordings": str(project.recordings.resolve()), "texts": {"language": "en"}}
    project.settings.write_text(json.dumps(settings | {"cutting": {"sampling_rate": 22050}}))
    return rows


def write_step(log: NvLog, step: int, loss: float, seconds: float = 0.5) -> None:
    place = f"{step - 1}/{STEPS}"
    epoch, number = divmod(step - 1, STEPS)
    log.log((epoch, number), {"glob_iter/iters_per_epoch": place, "train_loss": loss, "train_iter_time": seconds})
