"""The finished voice of a project: the best checkpoints as .safetensors, config.json, samples and a card."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from common import precision
from common.audio.audio_processing import load_audio
from common.checkpoint.files import best_path, find_last, load_checkpoint, save_copy
from common.data.filelist import Utterance, read_filelist
from common.errors import DataError
from common.files import make_folder, remove_leftovers, write_text
from common.inference import evaluation
from common.inference.config import EMBEDDED_DENOISING_STRENGTH, GRIFFIN_LIM, SynthesisConfig
from common.inference.outputs import write_sound
from common.inference.vocoders import Vocoder
from common.inference.voice_folder import CONFIG, read_voice_folder
from common.progress import MINUTE
from common.quality.recogniser import ENGLISH
from common.quality.report import System
from common.training.checkup import spread
from models import REGISTRY
from studio.plan.file import NEED, Plan
from studio.plan.inputs import Material, read_material
from studio.plan.proposal import LINES
from studio.prepare.review import read_proposals
from studio.prepare.texts import RECOGNISED
from studio.project import Project
from studio.train.progress import LOG, RunLog
from studio.voice.card import Facts, card
from studio.voice.verdict import EMBEDDED_VOICE, KEY, RECORDINGS, SPEAKER, Listener, Stored, choose_vocoder, judge
from synthesizer import EMBEDDED, Synthesizer, choose_checkpoints, load

SAMPLES = 3
LEAST_SYSTEMS = 3  # of a verdict: the voice through its best vocoder, the embedded voice, and the recordings
CLIPS = 40  # of training, whose mean is the speaker
STRENGTH = "denoising_strength"  # key of a checkpoint's data that Synthesizer reads


def best_checkpoint(project: Project, name: str) -> Path:
    """Return a model's best checkpoint, else its newest. Raises DataError if it has none."""
    best = best_path(project.run(name), name)
    found = best if best.exists() else find_last(project.run(name), name)
    if found is None:
        raise DataError(f"{project.run(name)}: no checkpoint of {name} yet")
    return found


def sharpened(project: Project, name: str, minutes: float) -> Path:
    """Return the file of a model's best checkpoint with mels sharpened for so long, which only the voice is made from."""
    digest = hashlib.sha256(best_checkpoint(project, name).read_bytes() + str(float(minutes)).encode())
    return project.run(name) / f"sharpened_{digest.hexdigest()[:16]}.pt"


def write_voice(project: Project, plan: Plan) -> list[str]:
    """Write PROJECT/voice/, replacing the files of an earlier voice. Returns the verdict on it in words."""
    make_folder(project.voice)
    remove_leftovers(project.voice)
    for name in REGISTRY.keys() - plan.models.keys():
        (project.voice / f"{REGISTRY[name].file_stem}.safetensors").unlink(missing_ok=True)
    checkpoints = {name: write_model(project, name, plan) for name in REGISTRY if name in plan.models}
    rows, material = read_filelist(project.validation_list), read_material(project)
    lines = spread(rows, max(LINES, *(options.evaluation.evaluate_lines for options in plan.models.values())))
    about = {"name": project.name, "language": material.hearing.language}
    write_text(
        project.voice / CONFIG, json.dumps(about | {"vocoder": preferred_vocoders(plan)[0]})
    )  # until the verdict is there
    systems, missing = evaluate(project, lines, plan, material)
    vocoder = choose_vocoder(systems, [name for name in preferred_vocoders(plan) if name in systems])
    verdict = judge(systems, vocoder, missing, has_heard_texts(project))
    words = verdict.lines(vocoder, str(plan.notes.get(NEED, "")))
    config: dict[str, Any] = {**about, "vocoder": vocoder, KEY: Stored(words, verdict.is_worse)._asdict()}
    config |= {} if math.isnan(verdict.voice.words) else {"words_wrong": round(float(verdict.voice.words), 3)}
    models = {name: {key: value[key] for key in ("config", "data")} for name, value in checkpoints.items()}
    write_text(project.voice / CONFIG, f"{json.dumps(config | {'models': models}, indent=1)}\n")
    write_samples(project, plan, lines[:SAMPLES], vocoder)
    facts = Facts(
        project=project,
        plan=plan,
        material=material,
        checkpoints=checkpoints,
        logs={name: RunLog.read(project.run(name) / LOG) for name in checkpoints},
        systems=list(systems.values()),
        verdict=words,
        vocoder=vocoder,
        samples=[row.text for row in lines[:SAMPLES]],
    )
    write_text(project.voice / "README.md", card(facts))
    return words


def write_model(project: Project, name: str, plan: Plan) -> dict[str, Any]:
    """Write a model's best weights as FLAG.safetensors. Returns the entries of its checkpoint that describe them."""
    spec = REGISTRY[name]
    checkpoint = load_checkpoint(best_checkpoint(project, name))
    checkpoint["state_dict"] = checkpoint.get("ema_state_dict") or checkpoint["state_dict"]
    minutes = plan.studio.sharpen_minutes
    if spec.role == "acoustic" and minutes and (path := sharpened(project, name, minutes)).exists():
        checkpoint["state_dict"] = load_checkpoint(path)["state_dict"]
    strength = start_strength(plan.models[name].start.warm_start)
    if spec.role == "vocoder" and strength is not None:
        checkpoint["data"] = checkpoint["data"] | {STRENGTH: strength}
    save_copy(project.voice / f"{spec.file_stem}.safetensors", checkpoint)
    return {key: checkpoint.get(key) for key in ("config", "data", "epoch", "iteration", "best")}


def start_strength(path: Path | None) -> float | None:
    """Return the denoising strength of a warm start: a small vocoder hums, after fine-tuning as before."""
    if path is None:
        return None
    if path.resolve().parent == EMBEDDED:
        return EMBEDDED_DENOISING_STRENGTH
    return load_checkpoint(path).get("data", {}).get(STRENGTH) if path.is_file() else None


def load_voice(project: Project, plan: Plan, vocoder: str) -> Synthesizer:
    """Load the voice of a project with one of its vocoders."""
    choice = choose_checkpoints(read_voice_folder(project.voice, REGISTRY.values()), vocoder)
    return Synthesizer.from_choice(choice, config=SynthesisConfig(), device=precision.pick_device(cpu=plan.cpu))


def evaluate(
    project: Project, rows: list[Utterance], plan: Plan, material: Material
) -> tuple[dict[str, System], list[str]]:
    """Measure validation lines: the voice through each of its vocoders, the embedded voice if they are English, and the recordings.

    The voice's best vocoder comes first, and those that the plan's minutes for the verdict leave no time for are left out. Returns
    the systems by name, and what could not be measured, each with the reason.
    """
    minutes = plan.studio.verdict_minutes
    end = math.inf if minutes is None else time.monotonic() + MINUTE * minutes
    voice = load_voice(project, plan, GRIFFIN_LIM)
    rate = voice.audio.sampling_rate
    sounds = (load_audio(project.root / row.path, rate) for row in rows)
    items = [
        evaluation.HeldOutLine(row.text, sound, "".join(voice.symbols(row.text)))
        for row, sound in zip(rows, sounds, strict=True)
    ]
    outputs = speak(voice, items, load_vocoders(project, plan, voice))
    rates = {}
    if material.hearing.code == ENGLISH:
        embedded = Synthesizer.embedded(device=voice.device)
        rates[EMBEDDED_VOICE] = embedded.audio.sampling_rate
        outputs |= speak(embedded, items, {EMBEDDED_VOICE: embedded.vocoder})
    outputs[RECORDINGS] = evaluation.recordings(items), math.nan
    measures, missing = usable_measures(material)
    evaluators, listen = evaluation.Evaluators(measures, material.hearing), None
    if not missing.get(SPEAKER):
        listen = listen_to_speaker(project, rate)
    systems: dict[str, System] = {}
    first = [name for name in (*preferred_vocoders(plan), EMBEDDED_VOICE, RECORDINGS) if name in outputs]
    for name in sorted(outputs, key=[first[0], EMBEDDED_VOICE, RECORDINGS, *first].index):
        if len(systems) >= LEAST_SYSTEMS and time.monotonic() > end:
            missing[name] = f"{name}, because the time for the verdict was over"
            continue
        renditions, speed = outputs[name]
        at = rates.get(name, rate)
        system = evaluation.evaluate_system(name, items, renditions, speed, evaluators, at)
        systems[name] = system if listen is None else system._replace(lines=[listen(line, at) for line in system.lines])
    return systems, list(missing.values())


def has_heard_texts(project: Project) -> bool:
    """Return True if the recogniser wrote the texts of most clips."""
    sources = [row.source for row in read_proposals(project.proposals)]
    return 2 * sources.count(RECOGNISED) > len(sources)


def listen_to_speaker(project: Project, rate: int) -> Listener:
    """Return what measures the likeness to a project's speaker, by some of its training clips, of `rate` Hz."""
    clips = spread(read_filelist(project.training_list), CLIPS)
    return Listener([project.root / row.path for row in clips], rate)


def load_vocoders(project: Project, plan: Plan, voice: Synthesizer) -> dict[str, Vocoder]:
    """Load all vocoders of a project's voice, by name; `voice` speaks through Griffin-Lim."""
    found, vocoders = read_voice_folder(project.voice, REGISTRY.values()), {GRIFFIN_LIM: voice.vocoder}
    for name in preferred_vocoders(plan):
        if checkpoint := choose_checkpoints(found, name).vocoder:
            loaded = load(checkpoint, voice.config, voice.device)
            vocoders[name] = Synthesizer(voice.acoustic, loaded, voice.config, voice.device).vocoder
    return vocoders


def speak(
    voice: Synthesizer, items: Sequence[evaluation.HeldOutLine], vocoders: Mapping[str, Vocoder]
) -> dict[str, tuple[list[evaluation.Rendition], float]]:
    """Speak lines with an acoustic model through vocoders: renditions and speed by name."""
    with torch.inference_mode():
        return evaluation.renditions_from_texts(items, voice.acoustic, vocoders, voice.audio, voice.device, False, 0)


def usable_measures(material: Material) -> tuple[list[str], dict[str, str]]:
    """Return the evaluators of words that judge these texts, and by measure what cannot be measured, with the reason."""
    missing = {}
    if material.hearing.missing:
        missing["wer"] = f"words, because {material.hearing.not_installed}"
    if find_spec("resemblyzer") is None:
        missing[SPEAKER] = "likeness, because resemblyzer is not installed (`bash scripts/evaluation.sh`)"
    return [] if "wer" in missing else ["asr"], missing


def preferred_vocoders(plan: Plan) -> list[str]:
    """Return the vocoders of a voice, the one to use where nothing is measured first.

    Griffin-Lim comes before a vocoder trained from the embedded one, which hums.
    """
    vocoders = [spec for spec in REGISTRY.values() if spec.name in plan.models and spec.role == "vocoder"]
    own = {spec.flag: plan.models[spec.name].start.warm_start for spec in vocoders}
    hums = [flag for flag, start in own.items() if start_strength(start) == EMBEDDED_DENOISING_STRENGTH]
    return [*(flag for flag in own if flag not in hums), GRIFFIN_LIM, *hums]


def write_samples(project: Project, plan: Plan, rows: list[Utterance], vocoder: str) -> None:
    """Write samples/sample_N.wav of validation texts."""
    voice = load_voice(project, plan, vocoder)
    shutil.rmtree(project.spoken.parent, ignore_errors=True)
    make_folder(project.spoken.parent)
    write_text(project.spoken, "".join(f"{row.text}\n" for row in rows))
    for positions, batch in voice.speak_batches(voice.lines([row.text for row in rows])):
        for place, speech in zip(positions, batch.speeches, strict=True):
            if speech is not None:
                write_sound(project.voice / "samples" / f"sample_{place + 1}.wav", rows[place].text, speech)
