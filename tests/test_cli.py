"""The command line as seen by users: exit codes, one line per error, machine-readable JSON."""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
import yaml

from resync.base.errors import UserError
from resync.base.processes.exit_code import exit_code
from resync.base.settings import loader
from resync.papers.paper import load_suite
from resync.papers.report.site import _sentence
from resync.runs.launch import slurm
from resync.runs.run.run import SCALES
from resync.tools.cli import declare, main
from resync.tools.cli.declare import GROUPS, VERBS, suite_of
from resync.tools.cli.declared import REFERENCE

ROOT = Path(__file__).parents[1]
CONFIGS = str(ROOT / "paper_configs")

pytestmark = pytest.mark.usefixtures("verbs_know_the_papers")


def test_no_variable_of_the_shell_decides_what_is_drawn_or_trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Variables that libraries read in every process; those of a launcher are for its ranks alone (test_faults)."""
    wrong = {"MPLBACKEND": "module://no.such", "MATPLOTLIBRC": str(tmp_path), "NVIDIA_TF32_OVERRIDE": "1"}
    wrong |= {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1", "GIT_DIR": str(tmp_path), "SOURCE_DATE_EPOCH": "0"}
    wrong |= {"DS_ACCELERATOR": "cuda"}
    draws = "import os; from resync.papers.render import style; print(style.matplotlib.get_backend())"
    started = "from resync.tools.cli import main; main(['list', '--configs', '/no'])"
    code = f"{started}\n{draws}\nprint(os.environ.get('GIT_DIR'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | wrong | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["agg", "None"], done.stderr
    for name, value in wrong.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout", TextIOWrapper(BytesIO(), "ascii"))
    assert main([]) == 0
    assert not any(os.environ.get(name) == value for name, value in wrong.items())
    print("\N{GREEK SMALL LETTER ETA}")


def test_each_mistake_is_one_line_and_the_exit_code_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    configs = shutil.copytree(ROOT / "tests/results/configs", tmp_path / "configs")
    file = configs / "toy/experiments/vit.yaml"
    file.write_text(file.read_text().replace("optimizer: ", "optimzer: ", 1))
    (configs / "toy/paper.yaml").write_text("figures: [")
    assert main(["list", "--configs", CONFIGS]) == 0
    assert re.search(r"^qsr +\d+ +\d+ +\d+ ", capsys.readouterr().out, re.MULTILINE)
    assert main(["list", "--configs", str(configs)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith(f"resync: error: {configs}") for line in lines)
    assert any("vit.yaml:" in line and "did you mean 'optimizer'?" in line for line in lines)
    assert any("toy/paper.yaml:" in line for line in lines)


@pytest.fixture
def files_read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The configuration files that have been read, without the declarations of components."""
    paths: list[Path] = []
    read = loader._read

    def noted(path: Path) -> str:
        if path.is_relative_to(CONFIGS):
            paths.append(path.relative_to(CONFIGS))
        return read(path)

    monkeypatch.setattr(loader, "_read", noted)
    monkeypatch.setattr("resync.tools.cli.declare.load_suite", load_suite)  # not what has been read before
    declare._read.cache_clear()
    return paths


@pytest.mark.parametrize(
    "verb",
    [
        ["list", "qsr"],
        ["show", "qsr/fig5"],
        ["plan", "qsr"],
        ["status", "--results", ".", "qsr"],
        ["audit", "--results", ".", "qsr"],
    ],
    ids=lambda verb: verb[0],
)
def test_with_a_paper_only_its_files_are_read(
    verb: list[str], files_read: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert main([*verb, "--configs", CONFIGS]) == 0
    of_paper = sorted(path.relative_to(CONFIGS) for path in Path(CONFIGS, "qsr").rglob("*.yaml"))
    assert len(of_paper) > 3
    assert sorted(files_read) == sorted([*of_paper, *(Path("scales", f"{scale}.yaml") for scale in SCALES)])


def test_each_file_is_read_once_and_none_for_an_unknown_paper(files_read: list[Path], capsys):
    assert main(["plan", "--configs", CONFIGS]) == 0
    assert len(files_read) == len(set(files_read)) == len(list(Path(CONFIGS).rglob("*.yaml")))
    files_read.clear()
    capsys.readouterr()
    assert main(["plan", "--configs", CONFIGS, "qsrr"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"resync: error: paper: found 'qsrr', allowed: .*\bqsr\b.*; did you mean 'qsr'\?", line)
    assert all(path.parts[0] == "scales" for path in files_read)


def test_list_has_every_run_as_an_object(capsys: pytest.CaptureFixture[str]):
    assert main(["list", "--configs", CONFIGS, "qsr", "--runs", "--scale", "smoke", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)
    assert all({"id", "seed", "workers", "sync", "total_steps", "config_hash"} <= set(run) for run in runs)
    assert len({run["id"] for run in runs}) == len(runs)


def test_a_list_as_json_has_what_the_table_has(capsys: pytest.CaptureFixture[str]):
    found = {}
    for of in ("", "qsr", "qsr/fig5"):
        assert main(["list", "--configs", CONFIGS, "--json", *of.split()]) == 0
        found[of] = {each["id"]: each for each in json.loads(capsys.readouterr().out)}
    assert found[""]["qsr"]["runs"]["smoke"] > 0
    assert len(found["qsr"]) == found[""]["qsr"]["items"] + found[""]["qsr"]["claims"]
    assert list(found["qsr/fig5"]) == ["qsr/fig5"]


def test_a_figure_stands_for_its_runs(capsys: pytest.CaptureFixture[str]):
    shown = {}
    for of in ("qsr", "qsr/fig5"):
        assert main(["plan", of, "--configs", CONFIGS, "--scale", "paper", "--json"]) == 0
        shown[of] = {entry["run"].rpartition("/")[0] for entry in json.loads(capsys.readouterr().out)}
    assert shown["qsr/fig5"] == {"qsr/vit_b16_b4096/h4", "qsr/vit_b16_b4096/qsr_h4"} < shown["qsr"]


@pytest.mark.parametrize("flags", [["--paper", "qsr", "--item", "fig5"], ["--paper=qsr", "--item=fig5"]], ids=len)
def test_flags_name_a_figure_as_its_argument_does(flags: list[str], capsys: pytest.CaptureFixture[str]):
    shown = []
    for named in (["qsr/fig5"], flags):
        assert main(["list", "--runs", *named]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != ""


def test_plan_has_the_published_schedule_exactly_and_names_missing_data(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("RESYNC_DATA", str(tmp_path))
    monkeypatch.delenv("RESYNC_PREPARED", raising=False)
    assert main(["plan", "--configs", CONFIGS, "qsr", "--scale", "paper", "--json"]) == 0
    out, err = capsys.readouterr()
    [line] = err.splitlines()
    assert line.startswith(f"resync: data imagenet1k missing: not prepared in {tmp_path}/prepared; ")
    plans = {plan["run"]: plan for plan in json.loads(out)}
    vit = plans["qsr/vit_b16_b4096/qsr_h4/seed0"]
    assert (vit["steps"], vit["rounds"], vit["volume_percent"]) == (93_600, 9_711, 10.375)
    assert vit["bytes_per_worker"] == 9_711 * vit["parameters"] * 4
    assert plans["qsr/resnet152_b4096/qsr_h2/seed0"]["rounds"] == 24_792


def test_plan_sums_over_papers(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["plan", "--configs", CONFIGS, "qsr", "--json", "--by", "paper"]) == 0
    [paper] = json.loads(capsys.readouterr().out)
    assert main(["plan", "--configs", CONFIGS, "qsr", "--write", str(tmp_path / "plan")]) == 0
    runs = json.loads((tmp_path / "plan.json").read_text())
    assert (paper["name"], paper["runs"]) == ("qsr", len(runs))
    assert paper["flops"] == sum(run["flops"] for run in runs) > 0
    text = (tmp_path / "plan.md").read_text()
    assert re.findall(r"^## By (\w+)$", text, re.MULTILINE) == ["paper", "experiment", "run"]
    assert all(run["run"] in text for run in runs)
    assert main(["plan", "--configs", CONFIGS, "qsr"]) == 0
    assert re.findall(r"^(paper|experiment|run) ", capsys.readouterr().out, re.MULTILINE) == ["paper", "experiment"]


def test_time_is_calibrated_on_the_published_hours(capsys: pytest.CaptureFixture[str]):
    network = ["--network", "ethernet_25g"]
    assert main(["time", "--configs", CONFIGS, "qsr", "--scale", "paper", "--json", *network]) == 0
    times = {time["run"].split("/", 1)[1].rpartition("/")[0]: time for time in json.loads(capsys.readouterr().out)}
    qsr, local = times["vit_b16_b4096/qsr_h4"], times["vit_b16_b4096/h4"]
    assert (qsr["basis"], round(qsr["hours"], 2), qsr["published_status"]) == ("fitted", 20.2, "verified")
    assert (local["basis"], round(local["hours"], 2), local["steps"]) == ("predicted", 21.26, 93_600)
    assert round(local["communication_seconds"] / 3600, 2) == 1.81
    assert main(["time", "--configs", CONFIGS, "qsr", "--scale", "smoke", *network]) == 2
    assert "to calibrate on, rehearse them or give --compute" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("list qrs", "qsr"),
        ("list fig5", "paper: found 'fig5', allowed: qsr/fig5"),
        ("show vit_qsr_h4_accuracy", "allowed: qsr/vit_qsr_h4_accuracy"),
        ("run fig5", "target: found 'fig5', allowed: qsr/fig5"),
        ("open fig5", "allowed: qsr/fig5"),
        ("plan qsr/fig55", "did you mean 'fig5'?"),
        ("power qsr/nothing --scale smoke", "qsr/nothing: no claim is on"),
        ("list --configs no/such/folder", "no/such/folder: the folder does not exist"),
        ("plan sgp --scale gpu", "--scale gpu: no runs of sgp, allowed: smoke and mini and paper"),
        ("plan ddp_tricks --pilots", "no pilot runs of ddp_tricks, allowed: mini"),
        ("time sgp --scale gpu --network ethernet_10g", "no runs of"),
        ("train --config no/such/run.yaml --out nowhere", "no/such/run.yaml"),
        ("rehearse qsr --shape abc", "--shape: found 'abc'"),
        ("compare slowmoo", "did you mean 'slowmo'?, or one that `resync new algorithm slowmoo`"),
        ("new paper Tug", "name: found 'Tug'"),
        ("new algorithm lambda", "no keyword of Python"),
        ("new algorithm sgp", "src/resync/workers/sync/sgp.py: exists, allowed: another name"),
        ("new experiment second", "allowed for experiment: paper/name"),
        ("new paper mine/second", "allowed for paper: a name without /"),
        ("new experiment qsrr/second", "paper_configs/qsrr: no such paper; did you mean 'qsr'?"),
    ],
)
def test_a_wrong_argument_is_one_line(command: str, message: str, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main(command.split()) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("resync: error: ")
    assert message in line


def test_completion_offers_verbs_and_papers():
    for line, expected in (("resync stat", ["status "]), ("resync plan sl", ["slowmo "])):
        env = os.environ | {
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_IFS": "\n",
            "COMP_LINE": line,
            "COMP_POINT": str(len(line)),
        }
        command = "import os, sys; os.dup(1); os.dup2(1, 8); os.dup2(2, 9); from resync.tools.cli import main; main([])"
        done = subprocess.run([sys.executable, "-c", command], cwd=ROOT, env=env, capture_output=True, text=True)
        assert done.stdout.split("\n") == expected


def test_output_that_nobody_reads_ends_the_command_without_a_word():
    command = f"{shlex.quote(sys.executable)} -m resync list qsr --runs --json | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (141, "[\n", "")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["adit"], "verb: found 'adit', allowed: run, "),
        (["audit", "--scale", "min"], "--scale: found 'min', allowed: smoke, mini, gpu, paper; did you mean 'mini'?"),
        (["audit", "--jsn"], "--jsn: no such flag; did you mean '--json'?"),
        (["open", "--scalle", "mini"], "--scalle: no such flag; did you mean '--scale'?"),
    ],
)
def test_what_is_mistyped_is_answered_in_a_line_with_the_most_similar_word(given, message, capsys):
    with pytest.raises(SystemExit) as end:
        main(given)
    assert end.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"resync: error: {message}")
    assert "did you mean" in line


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["show", "qsr", "--results", "a"], "--results: no flag of this verb; `"),
        (["open", "--out=a"], "--out=a: no flag of this verb; `"),
        (
            ["plan", "qsr", "sgp"],
            "sgp: one argument too many, or names that are not together, allowed: names, then flags",
        ),
    ],
)
def test_what_another_verb_has_is_not_called_unknown(given, message, capsys):
    with pytest.raises(SystemExit):
        main(given)
    assert capsys.readouterr().err.startswith(f"resync: error: {message}")


def test_a_slurm_job_without_the_commands_of_slurm_is_a_mistake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """As within a container: one that is tried again would end in the same way."""
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"^found SLURM_JOB_ID=77, of a Slurm job, and no srun, allowed: "):
        slurm.require_commands()
    with pytest.raises(UserError, match=r"^--on-node: found no SLURM_STEP_NODELIST, allowed: "):
        slurm.place()
    for name in ("SLURM_STEP_NODELIST", "SLURM_STEP_ID", "SLURM_NODEID"):
        monkeypatch.setenv(name, "0")
    with pytest.raises(UserError, match=r"^scontrol: not installed here, in Slurm job 77$"):
        slurm.place()
    slurm.requeue()  # says so, and ends as asked


def test_without_a_verb_all_verbs_are_shown_in_groups(capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert [line[:-1] for line in shown.splitlines() if line.endswith(":")] == [*GROUPS, "examples"]
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(VERBS)
    assert max(map(len, shown.partition("examples:")[0].splitlines())) <= 70


def test_a_failed_workflow_ends_with_its_error_and_nothing_else(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("resync.tools.cli.running.snakemake", lambda *_: 137)
    assert main(["run", "qsr/fig5"]) == 137
    *_, how, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"Ended with exit code 137 after 0:00:\d\d: \d of 6 runs finished, .*", how)
    assert last == "The same command continues."


def test_docs_site_and_terminal_count_the_same_claims(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("resync.tools.cli.running.snakemake", lambda *_: 0)
    assert main(["run"]) == 0
    shown, page = capsys.readouterr().out, (ROOT / "docs/tables/claims.md").read_text()
    counted = re.findall(r"^\| (\w+), [\d,]+ runs \|[^|]+\| (of [^|]+) \|", page, re.MULTILINE)
    assert [scale for scale, _ in counted] == ["mini", "paper"]
    for scale, words in counted:
        assert f"At {scale:<8}{words} (" in shown
        assert _sentence(REFERENCE, scale) == f"{words}."


def test_an_item_without_claims_promises_none(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("resync.tools.cli.running.snakemake", lambda *_: 0)
    assert main(["run", "qsr/h_vit"]) == 0
    assert "claim" not in capsys.readouterr().out


def test_the_profile_slurm_needs_its_executor(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("resync.tools.cli.running.find_spec", lambda _: None)
    assert main(["run", "qsr", "--profile", "slurm", "-n"]) == 2
    assert "--profile slurm: its executor is not installed" in capsys.readouterr().err


def test_a_cluster_says_what_it_does_as_one_machine_does():
    local, slurm_ = (
        yaml.safe_load((ROOT / f"workflow/profiles/{name}/profile.v9+.yaml").read_text()) for name in ("local", "slurm")
    )
    assert (local["logger"], local["quiet"]) == (slurm_["logger"], slurm_["quiet"])


def test_show_says_what_came_out_in_the_archive(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main(["show", "qsr/vit_qsr_h4_accuracy"]) == 0
    shown = capsys.readouterr().out
    assert "mini scale, the repository's own runs:" in shown
    verdict = r"^    (agrees|smaller|disagrees|open|not tested here).*claimed at least \+0.3.*, n = \d+$"
    assert re.search(rf"^QSR with H_base = 4 reaches .*\n{verdict}", shown.partition("own runs:")[2], re.MULTILINE)
    assert main(["show", "qsr/figg"]) == 2
    assert "did you mean 'fig5'?" in capsys.readouterr().err


def test_show_says_of_a_run_of_the_asked_scale_where_it_lies_and_what_came_out(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    shown = {}
    for scale in ("smoke", "paper"):
        assert main(["show", "qsr/vit_b16_b4096/qsr_h4/seed0", "--scale", scale]) == 0
        shown[scale] = capsys.readouterr().out
        assert f"\nscale: {scale}\n" in shown[scale]
        assert f"\nresults/{scale}/qsr/vit_b16_b4096/qsr_h4/seed0: " in shown[scale]


def test_the_version_is_that_of_the_installed_package(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"resync {version('resync-suite')}\n"


def test_a_closed_standard_output_is_no_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdout", None)  # as after `resync launch ... >&-`
    assert exit_code(lambda: None) == 0


def test_a_process_reads_a_paper_again_only_where_one_of_its_files_has_changed(tmp_path: Path):
    for name in ("scales", "ddp_tricks"):
        shutil.copytree(Path(CONFIGS, name), tmp_path / name)
    options = argparse.Namespace(configs=tmp_path, paper="ddp_tricks")
    suite = suite_of(options)
    assert suite_of(options) is suite
    file = tmp_path / "ddp_tricks/paper.yaml"
    file.write_text(file.read_text().replace("title: ", "title: Another ", 1))
    assert suite_of(options).papers["ddp_tricks"] != suite.papers["ddp_tricks"]
