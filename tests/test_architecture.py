"""The rules of the house, read off the source: allowed imports, names that belong to one part, lengths."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

import models
from tests.recipe import EVALUATORS, ROOT

# The parts of the recipe that each part may import, beside itself.
MAY_IMPORT = {
    "common": set(),
    "tacotron2": {"common"},
    "waveglow": {"common"},
    "pulse_noise": {"common"},
    "models": {"common", "tacotron2", "waveglow", "pulse_noise"},
    "data_functions": {"common", "models"},
    "loss_functions": {"common", "models"},
    "train": {"common", "models", "data_functions", "loss_functions", "compat"},
    "compat": {"common", "models"},
    "tacotron2_common": {"common"},
    "synthesizer": {"common", "models"},
    "exports": {"common", "tacotron2", "waveglow", "pulse_noise", "models", "synthesizer"},
    "inference": {"common", "models", "synthesizer", "exports", "compat"},
    "evaluate": {"common", "models", "synthesizer", "exports"},
    "tacotron2_waveglow": {"common", "models", "synthesizer", "compat"},
    "hubconf": {"tacotron2_waveglow"},
    "serving": {"common", "models", "synthesizer"},
    "studio": {"common", "models", "synthesizer", "exports", "serving"},
    "multiproc": {"common"},
}
PACKAGES = {
    *(
        "torch",
        "numpy",
        "scipy",
        "soundfile",
        "soxr",
        "librosa",
        "matplotlib",
        "tqdm",
        "jinja2",
        "psutil",
        "safetensors",
    ),
    *("inflect", "num2words", "unidecode"),  # of the text front end
}
# Packages that common/quality measures with where they are installed, so never imported at the top of a file.
OPTIONAL = {*EVALUATORS, "onnxruntime", "resemblyzer"}
WHISPER_PACKAGES = {"faster_whisper", "huggingface_hub"}  # of requirements/whisper.txt, there as well
EXPORT_PACKAGES = {"onnx", "onnxruntime", "onnxscript"}  # of requirements/exports.txt, in exports/ alone
TRITON_PACKAGES = {"tritonclient"}  # of requirements/triton.txt, there as well
TRITON_SERVER = {"triton_python_backend_utils"}  # a module of the server itself
# Of requirements/serving.txt, in serving/ alone.
SERVING_PACKAGES = {
    "av", "fastapi", "fastapi_offline", "httpx", "prometheus_client", "pydantic", "starlette", "uvicorn", "wyoming"
}  # fmt: skip
ANSWER_PACKAGES = {"rapidfuzz"}  # of requirements/eval.txt, in serving/ inside functions
# Of requirements/studio.txt and requirements/eval.txt, in studio/ inside functions: some recordings need none of them;
# tensorboard is of requirements.txt, and PyTorch imports it for the log of a training.
STUDIO_PACKAGES = {"av", "charset_normalizer", "httpx", "rapidfuzz", "tensorboard"}
PAGE_PACKAGES = {"fastapi", "gradio", "starlette", "uvicorn"}  # of requirements/studio.txt, for common/web and the page
PAGE_FILES = ("common/web/", "studio/page/", "studio/__main__.py")
FOR_TYPES_ONLY = {"typing_extensions"}
LONGEST_FUNCTION, LONGEST_FILE = 40, 450


class Source(NamedTuple):
    """A file of the recipe and its syntax tree."""

    name: str  # common/audio/stft.py
    part: str  # common, or train for train.py
    text: str
    tree: ast.Module


def tracked_files() -> list[Path]:
    """All Python files that git knows, or, outside of a checkout, all there are."""
    listing = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode == 0 and listing.stdout:
        return [ROOT / line for line in listing.stdout.splitlines() if (ROOT / line).exists()]
    hidden = lambda path: any(part.startswith(".") for part in path.relative_to(ROOT).parts)  # noqa: E731
    return [path for path in ROOT.rglob("*.py") if not hidden(path)]


def read(path: Path) -> Source:
    place, text = path.relative_to(ROOT), path.read_text()
    return Source(str(place), place.parts[0].removesuffix(".py"), text, ast.parse(text))


EVERYTHING = [read(path) for path in tracked_files()]
SOURCES = [source for source in EVERYTHING if source.part != "tests"]
RECIPE = [source for source in SOURCES if source.part in MAY_IMPORT]
PARTS_OF_ALL_MODELS = ("common", "train", "synthesizer", "inference", "evaluate", "serving")
SHARED = [source for source in RECIPE if source.part in PARTS_OF_ALL_MODELS]


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, module) of every import, those inside functions included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def docstrings(tree: ast.AST) -> set[ast.AST]:
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, holders)]
    return {body[0].value for body in bodies if body and isinstance(body[0], ast.Expr)}


def words(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, word) of every identifier and string, but for docstrings and the helps of flags."""
    helps = {
        node
        for keyword in ast.walk(tree)
        if isinstance(keyword, ast.keyword) and keyword.arg == "help"
        for node in ast.walk(keyword.value)
    }
    passed_over = docstrings(tree) | helps
    for node in ast.walk(tree):
        if node in passed_over:
            continue
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            if isinstance(getattr(node, field, None), str):
                yield getattr(node, "lineno", 0), getattr(node, field)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def offences(sources: list[Source], rule: Any) -> list[str]:
    """Every find of a rule in a syntax tree, as file:line: description."""
    return [f"{source.name}:{line}: {what}" for source in sources for line, what in rule(source.tree)]


def wrong_imports(is_wrong: Callable[[Source, str], bool], part: str = "") -> list[str]:
    """Every import of the recipe, or of one part of it, that is wrong in its source, as file:line: description."""
    return [
        f"{source.name}:{line}: imports {module}"
        for source in RECIPE
        if part in ("", source.part)
        for line, module in imports(source.tree)
        if is_wrong(source, module)
    ]


def test_the_top_level_is_the_one_agreed_on() -> None:
    at_the_top = {source.part for source in SOURCES if "/" not in source.name}
    library = {"synthesizer", "models", "data_functions", "loss_functions", "hubconf"}
    published = {"preprocess_audio2mel", "test_infer", "inference_perf", "main"}  # names of commands alone
    assert at_the_top == library | {"train", "inference", "evaluate", "multiproc"} | published
    assert not (ROOT / "platform" / "__init__.py").exists()  # it would hide Python's own
    assert {source.part for source in RECIPE} == set(MAY_IMPORT)


def test_imports_point_down() -> None:
    def is_upward(source: Source, module: str) -> bool:
        part = module.split(".")[0]
        return part in MAY_IMPORT and part not in {source.part} | MAY_IMPORT[source.part]

    assert wrong_imports(is_upward) == []


def test_families_of_common_import_downward() -> None:
    order = ["", "kernels", "audio", "checkpoint", "data", "reading", "quality", "run", "inference", "training", "web"]

    def family(module: str) -> str:
        parts = module.split(".")
        return parts[1] if len(parts) > 2 and parts[1] in order else ""

    def is_upward(source: Source, module: str) -> bool:
        own = source.name.split("/")[1] if source.name.count("/") > 1 else order[-1]
        return module.startswith("common.") and order.index(family(module)) > order.index(own)

    assert wrong_imports(is_upward, "common") == []


def test_rooms_of_the_studio_import_in_the_order_of_the_data() -> None:
    """Gradio stays in the page's tabs and frame."""
    order = ["ground", "prepare", "plan", "train", "voice", "share", "export", "jobs", "page", "__main__"]

    def place(module: str) -> int:
        first = [*module.split("."), ""][1]
        return order.index(first) if first in order else 0

    def is_upward(source: Source, module: str) -> bool:
        ends_training = source.name == "studio/train/__main__.py" and module.startswith("studio.voice")
        is_ours = module.startswith("studio.") and not ends_training
        return is_ours and place(module) > place(source.name.removesuffix(".py").replace("/", "."))

    assert wrong_imports(is_upward, "studio") == []
    with_gradio = {source.name for source in RECIPE if "gradio" in {module for _, module in imports(source.tree)}}
    with_gradio = {name.removeprefix("studio/page/") for name in with_gradio if name.startswith("studio/")}
    frame = {"app.py", "events.py"}
    assert {name for name in with_gradio if not name.endswith("_tab.py")} == frame
    assert len([source for source in RECIPE if source.part == "studio" and source.name.count("/") == 1]) <= 10


def test_no_cycles() -> None:
    """An import inside a function closes a circle as well, only later."""
    names = {source.name.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): source for source in RECIPE}
    needed = {
        name: {module for _, module in imports_at_run_time(source.tree)} & set(names) - {name}
        for name, source in names.items()
    }
    list(TopologicalSorter(needed).static_order())  # raises CycleError with the modules


def test_nothing_imports_the_scripts_or_the_tests() -> None:
    above = {source.part for source in EVERYTHING} - set(MAY_IMPORT) | {"train", "inference", "evaluate", "multiproc"}
    assert wrong_imports(lambda s, module: module.split(".")[0] in above - {s.part} - MAY_IMPORT[s.part]) == []


def test_no_package_but_the_declared_ones() -> None:
    known = PACKAGES | set(MAY_IMPORT) | set(sys.stdlib_module_names)
    for source in RECIPE:
        guarded = {module for node in source.tree.body if is_for_types(node) for _, module in imports(node)}
        used = {module for _, module in imports(source.tree)}
        at_the_top = {module.split(".")[0] for node in source.tree.body for _, module in imports_now(node)}
        optional = (OPTIONAL | WHISPER_PACKAGES) - at_the_top if source.name.startswith("common/quality/") else set()
        optional |= EXPORT_PACKAGES | TRITON_PACKAGES | TRITON_SERVER if source.part == "exports" else set()
        optional |= SERVING_PACKAGES | (ANSWER_PACKAGES - at_the_top) if source.part == "serving" else set()
        optional |= STUDIO_PACKAGES - at_the_top if source.part == "studio" else set()
        optional |= {"charset_normalizer"} - at_the_top if source.name == "common/data/text_files.py" else set()
        optional |= {"av"} if source.name == "common/audio/tempo.py" else set()  # imported for another speed only
        optional |= PAGE_PACKAGES if source.name.startswith(PAGE_FILES) else set()
        assert {module.split(".")[0] for module in used - guarded} <= known | optional, source.name
        assert {module.split(".")[0] for module in guarded} <= known | optional | FOR_TYPES_ONLY, source.name
    for path, packages, marks in (
        ("requirements.txt", PACKAGES - {"torch"}, ""),
        ("requirements/eval.txt", OPTIONAL, "=="),
        ("requirements/whisper.txt", WHISPER_PACKAGES, "=="),
        ("requirements/exports.txt", EXPORT_PACKAGES, "=="),
        ("requirements/serving.txt", SERVING_PACKAGES, "==|\\["),
        ("requirements/studio.txt", STUDIO_PACKAGES - {"rapidfuzz", "tensorboard"} | PAGE_PACKAGES, "=="),
        ("requirements/studio.txt", SERVING_PACKAGES - {"wyoming"}, "=="),  # its page has the server's
        ("requirements/triton.txt", TRITON_PACKAGES, "\\["),
    ):
        pinned = (ROOT / path).read_text().lower().replace("_", "-")
        assert [p for p in packages if not re.search(f"{p.replace('_', '-')}({marks})", pinned)] == [], path


def imports_at_run_time(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Imports of a file, those inside functions included, but for those that only a type checker makes."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from imports(node)
        elif not is_for_types(node):
            yield from imports_at_run_time(node)


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports_now(node: ast.stmt) -> Iterator[tuple[int, str]]:
    """Imports that a statement at the top of a module runs when the module is imported."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from imports(node)


def test_only_one_file_names_cuda() -> None:
    sources = [source for source in SOURCES if source.name != "common/precision.py"]
    found = offences(sources, lambda tree: [(line, word) for line, word in words(tree) if "cuda" in word.lower()])
    files = ("common/training/snapshot.py:", "common/checkpoint/fields.py:")
    keys = [place for place in found if place.startswith(files) and place.endswith(": cuda_rng_state_all")]
    assert [place for place in found if place not in keys] == []
    assert len(keys) == 3  # the checkpoint's key, once written, once checked and once read
    (precision,) = [source for source in SOURCES if source.name == "common/precision.py"]
    assert any(word == "cuda" for _, word in words(precision.tree))  # the search finds it where it is


def test_what_every_model_shares_names_none() -> None:
    def model_names(tree: ast.AST) -> list[tuple[int, str]]:
        names = [name.lower() for name in models.REGISTRY]
        return [(line, word) for line, word in words(tree) if any(name in word.lower() for name in names)]

    assert offences(SHARED, model_names) == []
    (registry,) = [source for source in RECIPE if source.name == "models.py"]
    assert {word.split(".")[0] for _, word in model_names(registry.tree)} == {"tacotron2", "waveglow"}
    assert "".join(models.REGISTRY) == "Tacotron2WaveGlowPulseNoise"


def test_plain_models_know_no_fast_way() -> None:
    """Only a package's spec and the files of its fast/ folder import accelerations."""
    models_own = [source for source in RECIPE if source.part in ("tacotron2", "waveglow")]

    def is_fast(source: Source, module: str) -> bool:
        may = f"{source.part}/fast/" in source.name or source.name == f"{source.part}/spec.py"
        return not may and module.startswith(f"{source.part}.fast")

    assert wrong_imports(is_fast, "tacotron2") + wrong_imports(is_fast, "waveglow") == []
    assert {source.part for source in models_own if "/fast/" in source.name} == {"tacotron2", "waveglow"}


# torch._x, torch.cpu._x; not torch.__version__
PRIVATE = re.compile(r"torch\.(ops\.(onednn|mkldnn|quantized)\b|(\w+\.)*_(?!_))")


def test_only_one_file_names_private_operators() -> None:
    def private(tree: ast.AST) -> list[tuple[int, str]]:
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        return [(node.lineno, ast.unparse(node)) for node in nodes if PRIVATE.match(ast.unparse(node))]

    documented = {f"torch._inductor{name}" for name in ("", ".aoti_compile_and_package", ".aoti_load_package")}
    found = {source.name: {name for _, name in private(source.tree)} - documented for source in SOURCES}
    assert [name for name, private_names in found.items() if private_names] == ["common/kernels/private_ops.py"]
    imported = {module for source in SOURCES for _, module in imports(source.tree)}
    assert not [module for module in imported if PRIVATE.match(module)]
    names = found["common/kernels/private_ops.py"]  # the search finds them where they are
    assert {"torch._weight_norm", "torch.ops.onednn.qlinear_prepack"} <= names


def test_nothing_is_too_long_to_read() -> None:
    def long_functions(tree: ast.AST) -> Iterator[tuple[int, str]]:
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    yield node.lineno, f"{node.name} has {lines} lines"

    assert offences(EVERYTHING, long_functions) == []
    assert [source.name for source in EVERYTHING if len(source.text.splitlines()) > LONGEST_FILE] == []


def test_no_call_and_no_import_that_is_forbidden() -> None:
    """`type=bool` takes any word for true; our own parser spells control characters; files of torch and pickles may hold code."""

    def forbidden(tree: ast.AST) -> Iterator[tuple[int, str]]:
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "type" and getattr(node.value, "id", "") == "bool":
                yield node.value.lineno, "type=bool"
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                may_run_code = name == "torch.load" and "weights_only=True" not in ast.unparse(node)
                if name.endswith("ArgumentParser") or may_run_code:
                    yield node.lineno, ast.unparse(node)
        yield from ((line, module) for line, module in imports(tree) if module.split(".")[0] == "pickle")

    assert offences(SOURCES, forbidden) == []
    (reader,) = [source for source in SOURCES if source.name == "common/checkpoint/tensors.py"]
    assert "torch.load(" in reader.text  # so that the search has something to find


def test_every_command_lets_an_interrupt_in_from_its_first_import_on() -> None:
    """Ctrl-C during the seconds of importing PyTorch is one line, too."""

    def late(tree: ast.AST) -> Iterator[tuple[int, str]]:
        assert isinstance(tree, ast.Module)
        guards = [node for node in tree.body if isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)]
        if guards and "exit_on_user_error" in ast.unparse(guards[-1]):
            lines = [(node.lineno, ast.unparse(node)) for node in tree.body if "import " in ast.unparse(node)]
            first = next(line for line in lines if line[1] not in ("import sys", "from __future__ import annotations"))
            if "before_imports()" not in first[1]:
                yield first

    assert offences(EVERYTHING, late) == []
    assert sum("before_imports()" in source.text for source in EVERYTHING) > 20


def test_every_module_says_what_it_is() -> None:
    assert [source.name for source in SOURCES if not ast.get_docstring(source.tree)] == []
