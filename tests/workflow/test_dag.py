"""After a change, the affected steps are repeated and no others. Results are faked: nothing is trained here."""

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from resync.papers.paper import load_suite

ROOT = Path(__file__).parents[2]
ITEM = "figures/smoke/qsr/fig5.pdf"
SITE = "results/smoke/site/index.html"
FIGURE = {ITEM.replace("pdf", suffix) for suffix in ("pdf", "png", "svg", "csv")}
EXPERIMENT = "paper_configs/qsr/experiments/vit_b16_b4096.yaml"


def made(jobs):
    """The files that the jobs would make."""
    return {name for job in jobs for name in job.fields["output"].split(", ")}


def trained(jobs):
    """`experiment/series` of the runs that would train."""
    trained = "\n".join(job.fields["wildcards"] for job in jobs if job.rule == "train")
    return {"/".join(run) for run in re.findall(r"experiment=(\w+), series=(\w+)", trained)}


def test_a_changed_plotting_function_draws_its_figures_again_and_the_site_shows_them(finished):
    finished.edit("src/resync/papers/render/period_and_accuracy.py", r"\Z", "\n# another line style\n")
    assert made(finished.jobs()) == FIGURE | {name.replace("fig5", "rules_curves") for name in FIGURE} | {SITE}


def test_a_changed_title_draws_one_figure_again_and_rewrites_the_site(finished):
    finished.edit("paper_configs/qsr/paper.yaml", r"(id: fig5\n(.*\n)*?\s+title: ).*", r"\1another title")
    assert made(finished.jobs()) == FIGURE | {"results/smoke/report.sha256", SITE}


def test_a_comment_in_a_paper_changes_nothing(finished):
    finished.edit(EXPERIMENT, r"\A", "# what this compares\n")
    assert finished.jobs() == []


def test_a_changed_claim_is_judged_again_and_nothing_trains(finished):
    finished.edit("paper_configs/qsr/claims.yaml", "at_least: 14", "at_least: 13")
    whole = {f"results/smoke/{name}" for name in ("audit.json", "report.sha256", "site/index.html")}
    assert made(finished.jobs()) == whole | {"results/smoke/qsr/audit.json"}


def test_what_an_audit_computes_from_configurations_is_computed_again(finished):
    """At smoke scale too it has the volumes of the published settings."""
    finished.edit(EXPERIMENT, "epochs: 300", "epochs: 299")
    assert "results/smoke/qsr/audit.json" in made(finished.jobs())
    assert trained(finished.jobs()) == set()


@pytest.mark.parametrize(("source", "plans"), [("papers/plan/cost.py", True), ("runs/metrics/registry.py", False)])
def test_changed_costs_and_metrics_are_planned_drawn_and_judged_again(finished, source, plans):
    finished.edit(f"src/resync/{source}", r"\Z", "\n# another way to compute it\n")
    jobs = finished.jobs()
    assert {ITEM, "results/smoke/qsr/audit.json", SITE} <= made(jobs)
    assert ("results/smoke/plan.json" in made(jobs)) == plans
    assert trained(jobs) == set()


def test_a_changed_label_is_shown_by_the_audit(finished):
    finished.edit(EXPERIMENT, r"label: QSR \(H_base=4\)", "label: QSR")
    assert {"results/smoke/qsr/audit.json", "results/smoke/qsr/collected.csv", ITEM} <= made(finished.jobs())
    assert trained(finished.jobs()) == set()


def test_the_audit_needs_runs_and_not_the_export(workflow):
    jobs = workflow.jobs("results/smoke/qsr/audit.json")
    assert {job.rule for job in jobs} == {"run_hash", "train", "audit_paper"}


def test_a_deleted_export_is_made_again_and_nothing_else(finished):
    (finished.directory / "results/smoke/qsr/collected.parquet").unlink()
    assert {job.rule for job in finished.jobs()} == {"collect"}


def test_an_imported_run_is_not_trained_also_with_another_configuration(workflow):
    run, other = load_suite(workflow.directory / "paper_configs").runs("qsr", "smoke", "vit_b16_b4096", "h4")[1:3]
    directory = workflow.directory / "results" / run.directory
    directory.mkdir(parents=True)
    for name in ("run.yaml", "metrics.csv", "steps.csv", "summary.json", run.hash_file.name):
        (directory / name).write_text('{"imported": {"format": "csv"}}')
    targets = f"results/{run.directory}/summary.json", f"results/{run.hash_file}"
    assert workflow.jobs(*targets) == []
    workflow.edit(EXPERIMENT, "data: {name: digits}", "data: {name: mnist_14}")
    with_other = workflow.jobs(f"results/{run.directory}/summary.json", f"results/{other.directory}/summary.json")
    assert {job.rule for job in with_other} == {"run_hash", "prepare", "train"}
    assert {job.fields["wildcards"][-1] for job in with_other if job.rule == "train"} == {"2"}


def test_another_alpha_trains_its_series_and_redoes_what_shows_it(finished):
    finished.edit(EXPERIMENT, r"h_base: 4, alpha: [\d.]+", "h_base: 4, alpha: 0.009")
    jobs = finished.jobs()
    assert trained(jobs) == {"vit_b16_b4096/qsr_h4"}
    assert {ITEM, "results/smoke/qsr/collected.csv", SITE} <= made(jobs)
    assert not any("/ddp_tricks/" in name for name in made(jobs))
    file = "results/smoke/qsr/vit_b16_b4096/qsr_h4/seed0/summary.json"
    finished.snakemake(file)
    assert finished.jobs(file) == []


def test_what_does_not_decide_a_result_trains_nothing_and_is_written_down_by_the_next_training(finished):
    run = "results/smoke/qsr/vit_b16_b4096/qsr_h4/seed0"
    finished.edit(EXPERIMENT, r"label: QSR \(H_base=4\)", r"\g<0>\n    log: {every_steps: 7}")
    repeated = {"results/smoke/plan.json", "results/smoke/plan.md", "results/smoke/report.sha256", SITE}
    assert made(finished.jobs()) == repeated
    (finished.directory / run / "summary.json").unlink()
    finished.snakemake(f"{run}/summary.json")
    assert "every_steps: 7" in (finished.directory / run / "run.yaml").read_text()
    finished.edit(EXPERIMENT, "log: {every_steps: 7}", "schedule: {max_lr: 0.0123}")
    assert trained(finished.jobs()) == {"vit_b16_b4096/qsr_h4"}


def test_a_run_without_results_trains_also_where_what_does_not_decide_them_has_changed(finished):
    """As when a training is interrupted, and goes on with more frequent checkpoints."""
    folder = finished.directory / "results/smoke/qsr/vit_b16_b4096/qsr_h4/seed0"
    for name in ("metrics.csv", "steps.csv", "summary.json"):
        (folder / name).unlink()
    finished.edit(EXPERIMENT, r"label: QSR \(H_base=4\)", r"\g<0>\n    checkpoint: {every_steps: 7}")
    jobs = finished.jobs(f"{folder.relative_to(finished.directory)}/summary.json")
    assert trained(jobs) == {"vit_b16_b4096/qsr_h4"}
    assert {"results/smoke/qsr/audit.json", ITEM} <= made(finished.jobs())


def test_a_run_has_one_hash_beside_it(finished):
    folder = finished.directory / "results/smoke/qsr/vit_b16_b4096/qsr_h4/seed0"
    [before] = folder.glob("*.hash")
    finished.edit(EXPERIMENT, r"h_base: 4, alpha: [\d.]+", "h_base: 4, alpha: 0.009")
    finished.snakemake()
    [after] = folder.glob("*.hash")
    assert before != after
    assert finished.jobs() == []
    finished.edit(EXPERIMENT, r"h_base: 4, alpha: [\d.]+", "h_base: 4, alpha: 0.0175")
    assert trained(finished.jobs()) == {"vit_b16_b4096/qsr_h4"}


def test_a_deleted_configuration_trains_nothing_and_can_be_written_again(finished):
    """Nor does one that is edited by hand: what is trained is what paper_configs declares. The audit says `stale`."""
    file = "results/smoke/qsr/vit_b16_b4096/h4/seed1/run.yaml"
    (finished.directory / file).unlink()
    finished.edit("results/smoke/qsr/vit_b16_b4096/h4/seed2/run.yaml", "max_lr: .*", "max_lr: 17.0")
    assert finished.jobs() == []
    finished.snakemake(file)
    assert (finished.directory / file).exists()
    assert finished.jobs() == []


def test_without_records_a_changed_run_is_trained_and_no_other(finished):
    """As when Snakemake's own folder was lost, or the results are from another machine."""
    shutil.rmtree(finished.directory / ".snakemake")
    assert finished.jobs() == []
    finished.edit(EXPERIMENT, r"h_base: 4, alpha: [\d.]+", "h_base: 4, alpha: 0.009")
    assert trained(finished.jobs()) == {"vit_b16_b4096/qsr_h4"}


@pytest.mark.parametrize("records", [True, False])
@pytest.mark.parametrize("seed", [0, 1])
def test_no_run_is_trained_again_because_of_the_times_of_files(finished, records, seed):
    """As after `cp`, `rsync` without times, or a download, with or without Snakemake's own folder."""
    start = "vit_b16_b4096/parallel/seed0"
    finished.edit(EXPERIMENT, r"label: QSR \(H_base=4\)", rf"\g<0>\n    start_from: {start}")
    finished.edit(EXPERIMENT, "data: {name: digits}", "data: {name: mnist_14}")
    finished.snakemake("qsr")
    if not records:
        shutil.rmtree(finished.directory / ".snakemake")
    written = sorted(path for path in (finished.directory / "results").rglob("*") if path.is_file())
    random.Random(seed).shuffle(written)
    for time, path in enumerate(written):
        os.utime(path, (time, time))
    assert trained(finished.jobs("qsr")) == set()
    finished.edit(EXPERIMENT, r"h_base: 4, alpha: [\d.]+", "h_base: 4, alpha: 0.009")
    assert trained(finished.jobs("qsr")) == {"vit_b16_b4096/qsr_h4"}
    (finished.directory / f"results/smoke/qsr/{start}/steps.csv").unlink()
    assert trained(finished.jobs("qsr")) == {"vit_b16_b4096/parallel", "vit_b16_b4096/qsr_h4"}


def test_a_run_whose_hash_was_written_before_an_interruption_is_trained(finished):
    """Also if the new hash has the older time."""
    finished.edit(EXPERIMENT, r"h_base: 4, alpha: [\d.]+", "h_base: 4, alpha: 0.009")
    run = load_suite(finished.directory / "paper_configs").runs("qsr", "smoke", "vit_b16_b4096", "qsr_h4")[0]
    finished.snakemake(f"results/{run.hash_file}")
    assert trained(finished.jobs(f"results/{run.directory}/summary.json")) == {"vit_b16_b4096/qsr_h4"}


def test_a_run_is_trained_again_when_the_run_that_it_starts_from_is(finished):
    start = "vit_b16_b4096/parallel/seed0"
    finished.edit(EXPERIMENT, r"label: QSR \(H_base=4\)", rf"\g<0>\n    start_from: {start}")
    finished.snakemake("qsr")
    (finished.directory / f"results/smoke/qsr/{start}/summary.json").unlink()
    assert trained(finished.jobs()) == {"vit_b16_b4096/parallel", "vit_b16_b4096/qsr_h4"}
    finished.snakemake("qsr")
    forced = finished.jobs("qsr", "-R", f"results/smoke/qsr/{start}/summary.json")
    assert trained(forced) == {"vit_b16_b4096/parallel", "vit_b16_b4096/qsr_h4"}


@pytest.mark.parametrize("force", ["-R train", "-R {folder}/summary.json", "-F", "-f", "-F --touch"])
def test_a_forced_run_trains_from_its_first_step_and_an_interrupted_one_continues(finished, force):
    """The program in place of `resync` leaves the wish, which the first training fulfils."""
    folders = [f"results/smoke/qsr/vit_b16_b4096/h4/seed{seed}" for seed in (0, 1)]
    (finished.directory / folders[1] / "summary.json").unlink()
    targets = [f"{folder}/summary.json" for folder in folders]
    finished.snakemake(*targets, *force.format(folder=folders[0]).split())
    asked = [(finished.directory / folder / "anew").exists() for folder in folders]
    assert asked == ["--touch" not in force, False]
    assert not (finished.directory / "results/smoke/qsr/vit_b16_b4096/h4/seed2/anew").exists()


def test_a_deleted_run_is_made_again(finished):
    (finished.directory / "results/smoke/qsr/vit_b16_b4096/h4/seed1/metrics.csv").unlink()
    assert trained(finished.jobs()) == {"vit_b16_b4096/h4"}


def test_a_figure_needs_its_own_runs_only(workflow):
    jobs = workflow.jobs(ITEM)
    suite = load_suite(workflow.directory / "paper_configs")
    shown = suite.item_runs("qsr", "fig5", "smoke")
    assert trained(jobs) == {f"{run.experiment}/{run.series}" for run in shown}
    assert {job.rule for job in jobs} == {"run_hash", "train", "figure"}


def test_the_run_that_another_one_starts_from_is_trained_first(workflow):
    start = "vit_b16_b4096/parallel/seed0"
    workflow.edit(EXPERIMENT, r"label: QSR \(H_base=4\)", rf"\g<0>\n    start_from: {start}")
    jobs = workflow.jobs("results/smoke/qsr/vit_b16_b4096/qsr_h4/seed2/summary.json")
    assert trained(jobs) == {"vit_b16_b4096/parallel", "vit_b16_b4096/qsr_h4"}
    assert f"results/smoke/qsr/{start}/summary.json" in made(jobs)


@pytest.mark.parametrize(
    ("data", "record"),
    [
        ("name: mnist_14", "results/data/mnist_14.json"),
        ("name: tiny_imagenet_20_224, format: files", "results/data/tiny_imagenet_20_224.files.json"),
    ],
)
def test_data_are_converted_once_before_the_runs_that_read_them(workflow, data, record):
    """Without RESYNC_DATA: a plan needs no data."""
    workflow.edit(EXPERIMENT, "data: {name: digits}", f"data: {{{data}}}")
    jobs = workflow.jobs("qsr")
    assert [job.fields["output"] for job in jobs if job.rule == "prepare"] == [record]
    training = [job for job in jobs if job.rule == "train"]
    readers = [job for job in training if "experiment=vit_b16_b4096," in job.fields["wildcards"]]
    assert {record in job.fields["input"] for job in readers} == {True}
    assert {"results/data" in job.fields["input"] for job in training if job not in readers} == {False}


def test_a_plot_of_periods_needs_no_training_and_follows_the_rule(finished):
    assert {job.rule for job in finished.jobs("figures/paper/qsr/h_rules.pdf")} == {"figure"}
    finished.edit(EXPERIMENT, r"h_base: 4, alpha: [\d.]+", "h_base: 4, alpha: 0.009")
    assert "figures/smoke/qsr/h_vit.pdf" in made(finished.jobs("figures/smoke/qsr/h_vit.pdf"))


def test_a_run_on_several_nodes_asks_slurm_for_them(workflow):
    """Finding 4 of Snakemake on Slurm: GPUs per node and one srun task per node; both from the run's resources."""
    run = load_suite(workflow.directory / "paper_configs").runs("qsr", "paper", "vit_b16_b4096", "h4")[0]
    jobs = workflow.jobs(f"results/{run.directory}/summary.json")
    resources = next(job for job in jobs if job.rule == "train").fields["resources"]
    asked = dict(pair.split("=") for pair in resources.split(", "))
    wanted = {"nodes": "2", "gres": "gpu:8", "tasks": "2", "mpi": "srun", "runtime": "2880"}
    assert asked | wanted == asked


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "scales=mini"], r"--config takes scale=smoke\|mini\|gpu\|paper"),
        (["figures/smoke/ddp_tricks/guide_log.pdf"], "ddp_tricks guide_log has no runs at scale smoke"),
        (["figures/smoke/qsr/fig55.pdf"], "fig55"),
    ],
)
def test_a_wrong_target_is_refused(workflow, arguments, message):
    code, output = workflow.attempt("--dry-run", *arguments)
    assert code != 0
    assert re.search(message, output)


def test_lint(workflow):
    assert "good condition" in workflow.snakemake("--lint")


def test_format():
    command = [sys.executable, "-m", "snakefmt", "--check", "Snakefile", "workflow"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def test_a_rehearsal_that_failed_is_repeated_until_it_does_not(finished):
    finished.snakemake("rehearse")
    assert finished.jobs("rehearse") == []
    shape, *_ = (file.stem for file in (finished.directory / "results/smoke/rehearsal").glob("*.json"))
    again = {f"results/smoke/rehearsal{name}" for name in (f"/{shape}.json", ".json", ".md")}
    for number in ("1", "2"):
        folder = finished.directory / "results/smoke/rehearsal" / shape
        folder.mkdir(exist_ok=True)
        (folder / "failures").write_text(number)
        assert made(finished.jobs("rehearse")) == again
        finished.snakemake("rehearse")
        assert finished.jobs("rehearse") == []
