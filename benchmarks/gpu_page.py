"""The GPU section of docs/performance.md, from the results of benchmarks.gpu; without results its cells are empty."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from common.files import atomic_write
from common.tables import markdown_table

BEGIN, END = "<!-- figures of benchmarks/gpu.sh begin -->", "<!-- figures of benchmarks/gpu.sh end -->"
TINY = (
    "--symbols-embedding-dim 16 --encoder-embedding-dim 16 --prenet-dim 16 --attention-rnn-dim 24 --attention-dim 8"
    " --decoder-rnn-dim 24 --postnet-embedding-dim 16 --flows 4 --early-every 2 --wn-layers 2 --wn-channels 8 -il 12"
)
# NVIDIA's mels and samples per second on one A100.
PUBLISHED = {("Tacotron2", "float16"): 31_499, ("WaveGlow", "float16"): 149_479}
LOADER_GOALS = {model: 10 * rate for (model, _), rate in PUBLISHED.items()}
LOADER_COLUMNS = "loader|from|processes|items/s|a second of a core|share of the goal|cores at the goal"
LOADER_TITLES = LOADER_COLUMNS.split("|")
WAYS = {"Tacotron2": ("--graphs", "--compile"), "WaveGlow": ("--compile", "--compile max-autotune", "--recompute")}
PICTURE = "gpu_latency.png"
MARK = "figures: "  # before the JSON in the output of a part
Results = Mapping[str, Mapping[str, Any]]


def environment() -> dict[str, str]:
    """The environment of a part; cuBLAS needs a variable for reproducible results."""
    return os.environ | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONUNBUFFERED": "1"}


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a part and the processes it started, which share a process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def read_file(path: Path) -> Any:
    """Read a JSON file, or the totals of a log; None if there is no file or no totals."""
    if not path.exists():
        return None
    text = path.read_text(encoding="utf-8")
    if path.name == "speed.json":
        return json.loads(text)
    records = [json.loads(line.removeprefix("DLLL ")) for line in text.splitlines() if line.strip()]
    totals = [record["data"] for record in records if record.get("type") == "LOG" and record.get("step") == []]
    return totals[-1] if totals else None


def write(page: Path, source: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Write `page`, the source page with a new section between the two comments, and the picture next to it."""
    before, begin, rest = source.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{source}: expected the comments {BEGIN} and {END}")
    done = {row["part"]: row["figures"] for row in results if row["status"] == "done" and row["figures"]}
    lines = section(done, [row for row in results if row["status"] != "done"])
    if draw(done, page.parent / PICTURE):
        lines += ["", f"![Seconds from text to wav by batch size]({PICTURE})"]
    with atomic_write(page) as file:
        file.write("".join([before, BEGIN, "\n\n", "\n".join(lines), "\n\n", END, after]).encode())


def section(done: Results, others: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """The lines of the section; tables only once something was measured."""
    if not (done or others):
        return [_machine(done)]
    lines = [_machine(done), "", *_training(done), "", *_ways(done), "", *_loaders(done), "", *_latency(done), ""]
    lines += _checks(done)
    for figures in (value for part, value in done.items() if part.startswith("speed ")):
        lines += ["", *_speed(figures)]
    if others:
        lines += ["", "Not measured: " + "; ".join(f"{row['part']} ({row['status']})" for row in others) + "."]
    return lines


def _machine(done: Results) -> str:
    if "machine" not in done:
        return "Not measured yet."
    m = done["machine"]
    rates = ", ".join(f"{name} {rate / 1e12:.3g} TFLOP/s" for name, rate in m["flops_per_sec"].items())
    reads = f"reads {m['read_bytes_per_sec'] / 1e9:,.4g} GB/s"
    return f"{m['device']}, {m['cpu']}, PyTorch {m['torch']}, {m['date']}; {rates}, {reads}."


def _training(done: Results) -> list[str]:
    columns = "training|clips|plain, items/s|ours|ratio|published, A100|peak, GB|forecast|deviation|GPU idle"
    titles = columns.split("|")
    rows = []
    for model in ("Tacotron2", "WaveGlow"):
        for numbers in ("float16", "tf32", "float32", "bfloat16"):
            f = done.get(f"training {model} {numbers}")
            idle = (done.get(f"profile {model} {numbers}") or {}).get("idle_share")
            cells = [""] * 4
            memory = [""] * 3
            if f:
                plain, ours = f["plain_items_per_sec"], f["ours_items_per_sec"]
                cells = [str(f["clips"]), f"{plain:,.0f}", f"{ours:,.0f}", f"{ours / plain:.2f}"]
                peak, expected = f["ours_peak_bytes"], f["ours_forecast_bytes"]
                memory = [f"{peak / 1e9:.2f}", f"{expected / 1e9:.2f}", f"{100 * (expected / peak - 1):+.0f} %"]
            share = "" if idle is None else f"{100 * idle:.0f} %"
            rows.append([f"{model}, {numbers}", *cells, _published_rate(model, numbers), *memory, share])
    return markdown_table("<" + ">" * (len(titles) - 1), titles, rows).splitlines()


def _published_rate(model: str, numbers: str) -> str:
    rate = PUBLISHED.get((model, numbers))
    return "" if rate is None else f"{rate:,}"


def _ways(done: Results) -> list[str]:
    columns = "training, off by default|items/s|default|ratio|plain|ratio|peak, GB|its default|first, s"
    titles = columns.split("|")
    rows = []
    for model, ways in WAYS.items():
        for way in ways:
            f, plain = done.get(f"way {way} {model} float16"), done.get(f"training {model} float16")
            cells = [""] * (len(titles) - 1)
            if f:
                rate, usual = f["way_items_per_sec"], f["default_items_per_sec"]
                cells[:3] = f"{rate:,.0f}", f"{usual:,.0f}", f"{rate / usual:.2f}"
                cells[5:7] = (_gigabytes(f[f"{name}_peak_bytes"]) for name in ("way", "default"))
                cells[7] = f"{f['way_first_seconds']:.1f}"
                if plain:
                    slow = plain["plain_items_per_sec"]
                    cells[3:5] = f"{slow:,.0f}", f"{rate / slow:.2f}"
            rows.append([f"{model}, `{way}`, float16", *cells])
    return markdown_table("<" + ">" * (len(titles) - 1), titles, rows).splitlines()


def _gigabytes(count: int | None) -> str:
    return "" if count is None else f"{count / 1e9:.2f}"


def _loaders(done: Results) -> list[str]:
    figures = done.get("loaders")
    rows = [loader_cells(row) for row in figures["rows"]] if figures else []
    if not rows:
        rows = [[model, source, *[""] * 5] for model in LOADER_GOALS for source in ("wav", "stored mels")]
    return markdown_table("<<" + ">" * (len(LOADER_TITLES) - 2), LOADER_TITLES, rows).splitlines()


def loader_cells(row: Mapping[str, Any]) -> list[str]:
    """The cells under LOADER_TITLES of one measurement of benchmarks.loaders."""
    rate, goal = row["items_per_sec"], LOADER_GOALS[row["model"]]
    workers = str(row["workers"]) if row["workers"] else "none"
    of_core = f"{row['per_cpu_sec']:,.0f}" if row["per_cpu_sec"] else ""
    rates = [f"{rate:,.0f}", of_core, f"{100 * rate / goal:.0f} %"]
    return [row["model"], row["source"], workers, *rates, str(row["needed"])]


def _latency(done: Results) -> list[str]:
    titles = ("text to wav, 128 characters, WaveGlow-256", "average, s", "90 %", "samples/s", "RTF")
    rows = []
    for numbers in ("fp16", "fp32"):
        for batch in (1, 4, 16, 64, 128):
            f = done.get(f"text-to-wav {numbers} {batch}")
            cells = [""] * 4
            if f:
                seconds = [f"{f[name]:.3f}" for name in ("latency", "p90_latency")]
                cells = [*seconds, f"{f['samples_per_sec']:,.0f}", f"{f['rtf']:.1f}"]
            rows.append([f"batch {batch}, {numbers}", *cells])
    return [*markdown_table("<>>>>", titles, rows).splitlines(), "", "Published, one A100, batch 1, float16: 0.80 s."]


def _checks(done: Results) -> list[str]:
    names = {"tests": "tests marked gpu", "tests of sound": "those of sound"}
    rows = [[title, done[part]["summary"] if part in done else ""] for part, title in names.items()]
    for model in ("Tacotron2", "WaveGlow"):
        for numbers in ("tf32", "float16"):
            f = done.get(f"resume {model} {numbers}")
            text = "" if f is None else "exact" if f["exact"] else f"weights differ by {f['difference']:.2g}"
            rows.append([f"{model}, {numbers}: resumed against unbroken, deterministic operators", text])
        f = done.get(f"two-processes {model} float32")
        text = ""
        if f is not None:
            text = f"weights differ by {f['from_one_process']:.2g}, between the two by {f['between_processes']:.2g}"
        rows.append([f"{model}: two processes over Gloo against accumulation in one (dropout differs)", text])
    return markdown_table("<<", ("check", "result"), rows).splitlines()


def _speed(figures: Mapping[str, Any]) -> list[str]:
    rows = []
    for row in figures["rows"]:
        share = "-" if row["share"] is None else f"{100 * row['share']:.0f} %"
        rates = [f"{row['reference']:.4g} {row['unit']}", f"{row['ours']:.4g}", f"{row['ratio']:.2f}"]
        rows.append([row["name"], *rates, share])
    return markdown_table("<>>>>", ("row", "reference", "ours", "ratio", "share of the limit"), rows).splitlines()


def draw(done: Results, path: Path) -> bool:
    """Plot seconds from text to wav against the batch size; False without figures or matplotlib."""
    found: dict[str, list[tuple[int, float]]] = {}
    for part, figures in done.items():
        if part.startswith("text-to-wav "):
            _, numbers, batch = part.split()
            found.setdefault(numbers, []).append((int(batch), figures["latency"]))
    if not found or find_spec("matplotlib") is None:
        return False
    from matplotlib.figure import Figure

    from common.data.pictures import save_figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for numbers, points in found.items():
        axes.plot(*zip(*sorted(points), strict=True), marker="o", label=numbers)
    axes.set(xscale="log", yscale="log", xlabel="texts in a batch", ylabel="seconds from text to wav")
    batches = sorted({batch for points in found.values() for batch, _ in points})
    axes.set_xticks(batches, [str(batch) for batch in batches])
    axes.minorticks_off()
    axes.legend()
    save_figure(path, figure)
    return True
