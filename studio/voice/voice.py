"""The finished voice of a project: the best checkpoints as .safetensors, config.json, samples and a card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from common import precision
from common.audio.audio_processing import load_audio
from common.checkpoint.files import best_path, find_last, load_checkpoint, save_copy
from common.data.filelist import Utterance, read_filelist
from common.errors import DataError
from common.files import atomic_write, remove_leftovers
from common.inference.arguments import vocoder_flags
from common.inference.config import EMBEDDED_DENOISING_STRENGTH, GRIFFIN_LIM, SynthesisConfig
from common.inference.evaluation import Evaluators, HeldOutLine, evaluate_system, renditions_from_texts
from common.inference.outputs import write_sound
from common.inference.vocoders import GriffinLimVocoder, Vocoder
from common.inference.voice_folder import CONFIG, read_voice_folder
from common.quality.report import System
from common.training.checkup import spread
from models import REGISTRY
from studio.plan.file import ModelPlan, Plan
from studio.plan.machine import counts_words
from studio.plan.material import read_material
from studio.project import Project
from studio.train.progress import Progress, read_reports
from studio.voice.card import Facts, card
from synthesizer import EMBEDDED, Synthesizer, choose_checkpoints

SAMPLES = 3
STRENGTH = "denoising_strength"  # key of a checkpoint's data that Synthesizer reads


def best_checkpoint(project: Project, name: str) -> Path:
    """Return a model's best checkpoint, else its newest. Raises DataError if it has none."""
    best = best_path(project.run(name), name)
    found = best if best.exists() else find_last(project.run(name), name)
    if found is None:
        raise DataError(f"{project.run(name)}: no checkpoint of {name} yet")
    return found


def write_voice(project: Project, plan: Plan, progress: Progress) -> None:
    """Write PROJECT/voice/, replacing the files of an earlier voice."""
    project.voice.mkdir(parents=True, exist_ok=True)
    remove_leftovers(project.voice)
    checkpoints = {name: write_model(project, name, plan.models[name]) for name in REGISTRY if name in plan.models}
    rows = read_filelist(project.validation_list)
    lines = spread(rows, max(settings.report_lines for settings in plan.models.values()))
    systems = evaluate(project, lines, plan)
    vocoder = choose_vocoder(systems, plan)
    config = {"name": project.name, "vocoder": vocoder, "models": {}}
    config["models"] = {name: {key: value[key] for key in ("config", "data")} for name, value in checkpoints.items()}
    write_text(project.voice / CONFIG, f"{json.dumps(config, indent=1)}\n")
    write_samples(project, plan, lines[:SAMPLES], vocoder)
    facts = Facts(
        project=project,
        plan=plan,
        progress=progress,
        material=read_material(project),
        checkpoints=checkpoints,
        reports={name: read_reports(project.run(name)) for name in checkpoints},
        systems=list(systems.values()),
        vocoder=vocoder,
        samples=[row.text for row in lines[:SAMPLES]],
    )
    write_text(project.voice / "README.md", card(facts))


def write_text(path: Path, text: str) -> None:
    """Replace a text file."""
    with atomic_write(path) as file:
        file.write(text.encode())


def write_model(project: Project, name: str, settings: ModelPlan) -> dict[str, Any]:
    """Write a model's best weights as FLAG.safetensors. Returns the entries of its checkpoint that describe them."""
    spec = REGISTRY[name]
    checkpoint = load_checkpoint(best_checkpoint(project, name))
    checkpoint["state_dict"] = checkpoint.get("ema_state_dict") or checkpoint["state_dict"]
    strength = start_strength(settings)
    if spec.role == "vocoder" and strength is not None:
        checkpoint["data"] = checkpoint["data"] | {STRENGTH: strength}
    save_copy(project.voice / f"{spec.file_stem}.safetensors", checkpoint)
    return {key: checkpoint.get(key) for key in ("config", "data", "epoch", "iteration", "best")}


def start_strength(settings: ModelPlan) -> float | None:
    """Return the denoising strength of the warm start: a small vocoder hums, after fine-tuning as before."""
    if settings.warm_start is None:
        return None
    path = Path(settings.warm_start)
    if path.resolve().parent == EMBEDDED:
        return EMBEDDED_DENOISING_STRENGTH
    return load_checkpoint(path).get("data", {}).get(STRENGTH) if path.is_file() else None


def load_voice(project: Project, plan: Plan, vocoder: str | None = None) -> Synthesizer:
    """Load the voice of a project."""
    found = read_voice_folder(project.voice, REGISTRY.values())
    own = [flag for flag in vocoder_flags(REGISTRY.values()) if flag in found]
    choice = choose_checkpoints(found, vocoder or next(iter(own), GRIFFIN_LIM))
    return Synthesizer.from_choice(choice, config=SynthesisConfig(), device=precision.pick_device(cpu=plan.cpu))


def evaluate(project: Project, rows: list[Utterance], plan: Plan) -> dict[str, System]:
    """Measure the voice on validation lines through its vocoder and Griffin-Lim; counts words if the recogniser is installed."""
    voice = load_voice(project, plan)
    audio = voice.audio
    sounds = (load_audio(project.root / row.path, audio.sampling_rate) for row in rows)
    items = [
        HeldOutLine(row.text, sound, "".join(voice.symbols(row.text))) for row, sound in zip(rows, sounds, strict=True)
    ]
    vocoders: dict[str, Vocoder] = {GRIFFIN_LIM: GriffinLimVocoder(audio, voice.device, 0)}
    if voice.vocoding:
        vocoders[voice.vocoding.spec.flag] = voice.vocoder
    with torch.inference_mode():
        outputs = renditions_from_texts(items, voice.acoustic, vocoders, audio, voice.device, False, 0)
    evaluators = Evaluators(["asr"] if counts_words() else [])
    return {
        name: evaluate_system(name, items, renditions, speed, evaluators, audio.sampling_rate)
        for name, (renditions, speed) in outputs.items()
    }


def choose_vocoder(systems: dict[str, System], plan: Plan) -> str:
    """Return the vocoder with the fewest wrong words, capped at the number of words of each line.

    Without a count of words, Griffin-Lim is preferred to a vocoder trained from the embedded one.
    """
    wrong = {
        name: sum(line.counts["wer"].cap().errors for line in system.lines if "wer" in line.counts)
        for name, system in systems.items()
    }
    counted = any("wer" in line.counts for system in systems.values() for line in system.lines)
    own = [name for name in systems if name != GRIFFIN_LIM]
    if not own:
        return GRIFFIN_LIM
    if counted:
        return min((*own, GRIFFIN_LIM), key=lambda name: wrong[name])
    small = any(start_strength(settings) == EMBEDDED_DENOISING_STRENGTH for settings in plan.models.values())
    return GRIFFIN_LIM if small else own[0]


def write_samples(project: Project, plan: Plan, rows: list[Utterance], vocoder: str) -> None:
    """Write samples/sample_N.wav of validation texts."""
    voice = load_voice(project, plan, vocoder)
    for number, (row, speech) in enumerate(zip(rows, voice.speak([row.text for row in rows]), strict=True), 1):
        write_sound(project.voice / "samples" / f"sample_{number}.wav", row.text, speech)
