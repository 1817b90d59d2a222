"""Properties of the repository as a whole: who imports whom, dependencies, what the files may name."""

import ast
import graphlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import pytest
import yaml

import resync

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/resync"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

# Top down: a wing imports wings that come after it, none before, and nothing that is for users.
WINGS = ["tools", "papers", "runs", "tasks", "workers", "base"]
FOR_USERS = {"__init__", "__main__", "library", "integrations"}
TRAINERS = ("transformers", "lightning", "peers")
"""The extras of resync.integrations, which have a lock of their own."""
LOCKS = ("requirements.lock", *(f"requirements-{extra}.lock" for extra in ("ffcv", "slurm", "trainers")))
WITHOUT_TORCH = {
    "errors", "files", "streams", "text_tables", "settings", "formulas", "data_sets", "metrics", "options", "run",
    "exchanges", "results", *(path.stem for wing in ("papers", "tools") for path in (PACKAGE / wing).iterdir()),
} - {"__init__", "doctor"}  # fmt: skip


def wing_and_room_of(module: str) -> tuple[str, str]:
    """`resync.workers.sync.local` -> (`workers`, `sync`); `resync` -> (`__init__`, ...); options are one room."""
    _, wing, room, part, *_ = [*module.split("."), "__init__", "__init__", ""]
    return wing, "options" if part == "options" else room


@cache
def imported() -> dict[str, set[str]]:
    """What every module of the package imports, by its name."""
    return {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): set(imports(ast.parse(path.read_text())))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def imports(tree: ast.AST) -> Iterator[str]:
    """The absolute names of the modules that a syntax tree imports anywhere; `resync` names a room, if it can."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            if node.module != "resync":
                yield str(node.module)
            if str(node.module).split(".")[0] == "resync":
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_everything_has_its_wing():
    assert {wing_and_room_of(module)[0] for module in imported()} == {*WINGS, *FOR_USERS}


def test_wings_import_only_downwards():
    upward = [
        f"{module} imports {name}"
        for module, names in imported().items()
        if (wing := wing_and_room_of(module)[0]) in WINGS
        for name in names
        if name.startswith("resync.") and wing_and_room_of(name)[0] not in WINGS[WINGS.index(wing) :]
    ]
    assert upward == []


class AtImport(ast.NodeTransformer):
    """Leaves of a module what runs when it is imported: neither the bodies of functions nor what is for types."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        return None

    def visit_If(self, node: ast.If) -> list[ast.stmt] | ast.If:
        return node.orelse if ast.unparse(node.test) == "TYPE_CHECKING" else node


def test_the_library_reaches_few_files_and_none_of_the_suite():
    found, left = set(), {"resync.library"}
    while left:
        found.add(module := left.pop())
        file = PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".py")
        names = set(imports(AtImport().visit(ast.parse(file.read_text()))))
        left |= (names | {f"{name}.__init__" for name in names}) & imported().keys() - found
    assert {wing_and_room_of(module)[0] for module in found} == {"library", "workers", "base"}
    assert len(found) <= 30, sorted(found)


def test_few_classes_have_the_name_of_another():
    """A name stands for one thing; layers of models, and what only its own file sees, may be called alike."""
    files: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                files.setdefault(node.name, set()).add(path.relative_to(PACKAGE).as_posix())
    assert len(twice := {name: sorted(where) for name, where in files.items() if len(where) > 1}) <= 12, twice


def test_no_modules_import_each_other():
    """Also not for types only, and not within a room."""
    needs = {module: names & imported().keys() for module, names in imported().items()}
    graphlib.TopologicalSorter(needs).prepare()  # raises CycleError that names them


def test_what_reads_configurations_or_results_never_imports_torch():
    heavy = {"torch", "torchvision"}
    importing = {module for module, names in imported().items() for name in names if name.split(".")[0] in heavy}
    found = {wing_and_room_of(module)[1] for module in importing}
    assert found & WITHOUT_TORCH == set()


def declared(requirements: list[str]) -> dict[str, str]:
    """`["torch>=2.11", ...]` -> `{"torch": ">=2.11", ...}`."""
    pairs = (re.fullmatch(r"([A-Za-z0-9_.-]+?)\s*([<>=!~].*)?", line) for line in requirements)
    return {pair[1].lower(): (pair[2] or "").replace(" ", "") for pair in pairs if pair}


def test_declared_dependencies_are_those_imported():
    distributions = {"yaml": "pyyaml", "pydantic_core": "pydantic", "PIL": "pillow"}
    names = {name.split(".")[0] for names in imported().values() for name in names}
    needed = {distributions.get(name, name) for name in names - sys.stdlib_module_names - {"resync"}}
    extras = {extra: set(declared(names)) for extra, names in PYPROJECT["project"]["optional-dependencies"].items()}
    optional = set().union(*(extras[extra] for extra in ("deepspeed", "ffcv", "wandb", *TRAINERS)))
    not_imported = {"snakemake", "snakemake-executor-plugin-slurm"}
    always = set(declared(PYPROJECT["project"]["dependencies"])) | extras["suite"]
    assert needed - optional - not_imported == always - not_imported


def test_environment_yml_agrees_with_pyproject():
    """It has what a cluster needs: DeepSpeed, FFCV and what it is compiled with; two packages are on PyPI only."""
    *lines, by_pip = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    to_compile = {"pip", "cxx-compiler", "libjpeg-turbo", "opencv", "pkg-config"}
    assert to_compile <= set(lines)
    extras = PYPROJECT["project"]["optional-dependencies"]
    chosen = ("suite", "slurm", "wandb", "deepspeed")
    wanted = declared(PYPROJECT["project"]["dependencies"] + [name for extra in chosen for name in extras[extra]])
    wanted["pytorch"] = wanted.pop("torch")
    wanted["python"] = PYPROJECT["project"]["requires-python"]
    assert declared(by_pip["pip"]) == declared(extras["ffcv"]) | {"rocrate": wanted.pop("rocrate")}
    assert declared([line for line in lines if line not in to_compile]) == wanted


def pinned(lock: str) -> dict[str, tuple[str, str]]:
    """Each package of a lock: its version, and its marker if any with a line for each hash."""
    text = (ROOT / lock).read_text()
    assert "--generate-hashes" in text.splitlines()[1]
    pins = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    pin = r"(\S+)==([^\s;]+)((?: ; [^\\\n]+)?(?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n"
    assert re.sub(pin, "", pins) == ""
    assert f"--require-hashes -r {lock}" in (ROOT / "Makefile").read_text()
    return {name: (version, hashes) for name, version, hashes in re.findall(pin, pins)}


def test_lock_pins_what_pyproject_names_and_hashes_every_archive():
    """`make` installs no archive with another hash."""
    extras = PYPROJECT["project"]["optional-dependencies"]
    others = [line for name, lines in extras.items() if name not in ("ffcv", "slurm", *TRAINERS) for line in lines]
    assert set(declared(PYPROJECT["project"]["dependencies"] + others)) <= set(pinned("requirements.lock"))
    assert set(declared(extras["slurm"])) <= set(pinned("requirements-slurm.lock"))
    assert {name for extra in TRAINERS for name in declared(extras[extra])} <= set(pinned("requirements-trainers.lock"))


@pytest.mark.parametrize("lock", LOCKS[1:])
def test_a_second_lock_agrees_with_the_first_one(lock: str):
    second, first = pinned(lock), pinned("requirements.lock")
    shared = second.keys() & first.keys()
    assert "numpy" in shared
    versions = [{name: pins[name][0] for name in shared} for pins in (second, first)]
    assert versions[0] == versions[1]


def test_files_that_take_long_begin_first(request: pytest.FixtureRequest):
    """By tests/conftest.py; xdist gives them out in this order."""
    tests = {"small.py": [False], "large.py": [False, False], "slow.py": [True], "slower.py": [False, True, True]}
    items = [
        SimpleNamespace(path=path, get_closest_marker={"slow": slow}.get) for path, of in tests.items() for slow in of
    ]
    request.config.pluginmanager.get_plugin(str(ROOT / "tests/conftest.py")).pytest_collection_modifyitems(items)
    assert [*dict.fromkeys(item.path for item in items)] == ["slower.py", "slow.py", "large.py", "small.py"]


def trees_of_tests() -> Iterator[tuple[Path, ast.Module]]:
    """Every file of tests, parsed."""
    for file in (ROOT / "tests").rglob("*.py"):
        yield file, ast.parse(file.read_text())


def test_tests_import_nothing_that_make_does_not_install_but_behind_a_guard():
    """What other locks pin is imported after `importorskip`, which says how to get it; else the file is an error."""
    optional = {name.replace("-", "_") for lock in LOCKS[1:] for name in pinned(lock)}
    optional -= {name.replace("-", "_") for name in pinned("requirements.lock")}
    assert {"safetensors", "ffcv"} <= optional
    for file, tree in trees_of_tests():
        guard = min((call.lineno for call in calls(tree, "importorskip")), default=sys.maxsize)
        early = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom) and node.lineno < guard]
        names = list(imports(ast.Module(early, [])))  # type: ignore[arg-type]
        assert [name for name in names if name.split(".")[0] in optional] == [], file


def test_tests_wait_for_a_limited_time():
    """In `machine.until`, or with a limit of their own: a loop that only sleeps ends with nobody's patience."""
    for file, tree in trees_of_tests():
        for loop in (node for node in ast.walk(tree) if isinstance(node, ast.While)):
            idle = all(isinstance(node, ast.Pass) or calls(node, "sleep") for node in loop.body)
            assert not idle or calls(loop.test, "monotonic"), f"{file}:{loop.lineno}"


def calls(tree: ast.AST, name: str) -> list[ast.Call]:
    """The calls of a function or method of this name."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [node for node in found if name in (getattr(node.func, "attr", ""), getattr(node.func, "id", ""))]


def test_ffcv_is_exactly_the_one_that_is_locked():
    [extra] = declared(PYPROJECT["project"]["optional-dependencies"]["ffcv"]).items()
    assert extra == ("ffcv", f"=={pinned('requirements-ffcv.lock')['ffcv'][0]}")


def test_version_is_the_cited_one():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PYPROJECT["project"]["version"] == resync.__version__
    assert f"## {citation['version']} ({citation['date-released']})" in (ROOT / "CHANGELOG.md").read_text()


def test_there_is_one_address_of_the_repository():
    assert f"git clone {PYPROJECT['project']['urls']['Repository']} " in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("page", ["README.md", "PACKAGE.md"])
def test_pages_count_the_methods(page: str):
    assert f"{len(import_module('resync.workers.sync.options').__all__)} methods" in (ROOT / page).read_text()


def test_an_installation_without_cuda_has_all_but_cuda_and_the_same_torch(tmp_path: Path):
    """What `make TORCH=cpu` asks of uv, which is replaced: it needs an index that not every machine reaches."""
    clone = tmp_path / "a b#c"
    record = 'echo "$*" >> calls'
    programs = {"bin/uv": record, "bin/sbatch": "", "bin/pkg-config": "exit 1", ".venv/bin/resync": record}
    for name, text in programs.items():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text(f"#!/bin/sh\n{text}\n")
        (clone / name).chmod(0o755)
    for name in ("Makefile", *LOCKS, "pyproject.toml"):
        shutil.copy(ROOT / name, clone)
    python = clone / "bin/python3"
    python.symlink_to(sys.executable)
    env = os.environ | {"PATH": f"{clone}/bin:{os.environ['PATH']}"}
    command = ["make", ".venv/installed", "TORCH=cpu", f"PYTHON={python}"]
    subprocess.run(command, cwd=clone, env=env, check=True, capture_output=True)
    lock = pinned("requirements.lock")
    calls = (clone / "calls").read_text().splitlines()
    torch, others, package, slurm = [line for line in calls if "pip install" in line]
    assert f"--python {python} " in calls[1]
    assert slurm.endswith("--require-hashes -r requirements-slurm.lock")
    # Snakemake loads it whenever it starts, and it fails where there is no `which`.
    assert not any(name.startswith("snakemake-executor-") for name in lock)
    assert calls[-1] == "schema"
    assert torch.endswith(f"--torch-backend cpu torch=={lock['torch'][0]} torchvision=={lock['torchvision'][0]}")
    assert others.endswith("--no-deps --require-hashes -r .venv/without-cuda.lock")
    assert package.endswith("--no-deps -e .")
    kept = re.findall(r"^([a-z][a-z0-9-]*)==", (clone / ".venv/without-cuda.lock").read_text(), re.MULTILINE)
    left_out = lock.keys() - set(kept)
    assert {"torch", "torchvision", "triton", "nvidia-nccl-cu13", "cuda-toolkit"} <= left_out
    assert all(re.match("torch|torchvision|triton|nvidia-|cuda-", name) for name in left_out)


def test_a_wheel_is_built_from_what_the_image_has(tmp_path: Path):
    """The files that Containerfile copies before it installs, and no other."""
    pytest.importorskip("hatchling", reason="hatchling is not installed: make")
    before_installation = (ROOT / "Containerfile").read_text().partition("RUN make")[0]
    for line in re.findall(r"^COPY (.*)$", before_installation, re.MULTILINE):
        *names, folder = line.split()
        for name in names:
            source, copy = ROOT / name, tmp_path / (folder if (ROOT / name).is_dir() else name)
            shutil.copytree(source, copy) if source.is_dir() else shutil.copy(source, copy)
    assert {name for name in LOCKS if name in (ROOT / "Makefile").read_text().partition(".venv/installed:")[2]} <= {
        path.name for path in tmp_path.iterdir()
    }
    build = "from hatchling.build import build_wheel; print(build_wheel('dist'))"
    done = subprocess.run([sys.executable, "-c", build], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with ZipFile(tmp_path / "dist" / done.stdout.strip()) as wheel:
        assert {"resync/__init__.py", "snakemake_logger_plugin_resync/__init__.py"} <= set(wheel.namelist())


def test_the_page_of_the_package_has_no_link_to_a_file():
    """It has no repository beside it."""
    page = (ROOT / PYPROJECT["project"]["readme"]).read_text()
    assert [link for link in re.findall(r"\]\(([^)]+)\)", page) if not link.startswith("https:")] == []
    assert len(page.split()) < 500


def test_the_light_environment_is_a_part_of_the_other():
    whole, light = (
        yaml.safe_load((ROOT / name).read_text())["dependencies"]
        for name in ("environment.yml", "environment-light.yml")
    )
    assert set(light[:-1]) < set(whole[:-1])
    assert set(light[-1]["pip"]) < set(whole[-1]["pip"])
    kept = set(declared(PYPROJECT["project"]["optional-dependencies"]["suite"]))
    assert kept <= {*declared(light[:-1]), *declared(light[-1]["pip"])}


def test_text_is_read_with_its_encoding_and_lines_end_where_lines_end():
    """`str.splitlines` ends lines within texts, as at U+0085; without an encoding the locale decides."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _reads_by_chance(node):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    assert not found, "\n".join(found)


def _reads_by_chance(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    of = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    given = {keyword.arg for keyword in call.keywords}
    if name == "splitlines":
        return of != "str(error)"  # the first line of a message
    if name in ("read_text", "write_text"):
        return bool(of) and of != "files" and "encoding" not in given
    if name in ("open", "fdopen") and of not in ("os", "tarfile", "Image", "lzma", "gzip", "webbrowser"):
        modes = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        return not any("b" in mode for mode in modes) and "encoding" not in given
    return bool(given & {"text", "universal_newlines"}) and name in ("run", "Popen") and "encoding" not in given


def written_files() -> Iterator[Path]:
    """The files that people wrote: all but what tools and runs leave behind."""
    generated = {"wandb", "results", "figures", "dist", "shared", "__pycache__"}
    for folder, subfolders, names in os.walk(ROOT):
        subfolders[:] = [
            name for name in subfolders if name not in generated and (name[0] != "." or name == ".ci")
        ]  # fmt: skip
        yield from (Path(folder) / name for name in names if name != ".git")  # of a worktree, where its repository is


@pytest.mark.parametrize(
    "forbidden",
    [
        r"/(work|home|root|Users|scratch|mnt)/\w",  # a path of one machine
        r"(pypi|pythonhosted|anaconda|debian|npmjs|pytorch)\.org",  # a registry: the installer knows its own
        r"(extra-)?index-url|find-links",
    ],
)
def test_no_file_names_a_machine_or_a_registry(forbidden):
    this = Path(__file__)
    texts = {path: path.read_bytes().decode("utf-8", "replace") for path in written_files() if path != this}
    found = [f"{path.relative_to(ROOT)}: {match[0]}" for path, text in texts.items()
             for match in re.finditer(forbidden, text)]  # fmt: skip
    assert found == []


def test_what_the_workflow_needs_is_there():
    """Folders that it writes, the profile by its name, and no docstring that `resync new` left to be filled in."""
    assert all((ROOT / name).is_dir() for name in ("results", "figures"))
    assert [file for file in (ROOT / "src").rglob("*.py") if '"""FILL IN' in file.read_text()] == []
    assert (ROOT / "slurm/profile.v9+.yaml").samefile(ROOT / "workflow/profiles/slurm/profile.v9+.yaml")


def test_no_text_installs_from_an_index_what_is_not_on_one():
    """Until a version is released, `pip install resync-suite` finds nothing, or what a stranger put there."""
    if "(unreleased)" in (ROOT / "CHANGELOG.md").read_text():
        pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *PACKAGE.rglob("*.py")]
        promised = [page for page in pages if re.search(r"pip install [^`\n]*resync", page.read_text())]
        assert promised == []
