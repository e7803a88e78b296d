"""Labels from the environment: git without git, batch jobs, CI; never a secret, never a failure."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import sketch
import tracewarehouse
from cli_runner import tw
from tracewarehouse.formats.redact.rules import policy_of
from tracewarehouse.formats.redact.text import Redactor
from tracewarehouse.ingest.environment import Recorded, environment_labels, git_labels

SHA = "3f2a91c05d6b7e88f0123456789abcdef0123456"
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


ELSEWHERE = Recorded(frozenset({Path("/")}), 0)


def labels(folder: Path, traces: Recorded | None = ELSEWHERE, **environment: str) -> dict[str, str]:
    redactor = Redactor(b"", policy_of(folder))
    return environment_labels(redactor, environment, folder, traces)


def repository(folder: Path, head: str = "ref: refs/heads/fix/loader\n") -> Path:
    git = folder / ".git"
    (git / "refs" / "heads" / "fix").mkdir(parents=True)
    (git / "HEAD").write_text(head)
    (git / "refs" / "heads" / "fix" / "loader").write_text(f"{SHA}\n")
    (folder / "scripts").mkdir()
    return folder


def test_commit_and_branch_come_from_the_repository_around_the_folder(tmp_path: Path) -> None:
    found = labels(repository(tmp_path) / "scripts", None)
    assert (found["git.commit"], found["git.branch"]) == (SHA[:12], "fix/loader")


def test_a_detached_head_packed_refs_and_worktrees(tmp_path: Path) -> None:
    assert git_labels(repository(tmp_path / "detached", f"{SHA}\n")) == {"git.commit": SHA[:12]}
    packed = repository(tmp_path / "packed")
    (packed / ".git" / "refs" / "heads" / "fix" / "loader").unlink()
    (packed / ".git" / "packed-refs").write_text(f"# pack-refs\n{SHA} refs/heads/fix/loader\n")
    assert git_labels(packed)["git.commit"] == SHA[:12]
    main = repository(tmp_path / "main")
    tree = main / ".git" / "worktrees" / "tree"
    tree.mkdir(parents=True)
    (tree / "HEAD").write_text("ref: refs/heads/fix/loader\n")
    (tree / "commondir").write_text("../..\n")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / ".git").write_text(f"gitdir: {tree}\n")
    assert git_labels(tmp_path / "tree") == {"git.commit": SHA[:12], "git.branch": "fix/loader"}


@pytest.mark.parametrize(
    "head", ["", "ref: ../../../etc/passwd", "ref: refs/heads/none", "not a commit", "\x00"]
)
def test_a_strange_repository_is_no_error(tmp_path: Path, head: str) -> None:
    assert git_labels(repository(tmp_path, head)).get("git.commit") is None


def test_the_same_commit_as_git(tmp_path: Path) -> None:
    run = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*run, "init", "-q", "-b", "topic"], check=True)
    subprocess.run([*run, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    sha = subprocess.run([*run, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    assert git_labels(tmp_path) == {"git.commit": sha[:12], "git.branch": "topic"}


def test_jobs_ci_and_images_come_from_variables(tmp_path: Path) -> None:
    found = labels(
        tmp_path, SLURM_JOB_ID="4711", WANDB_RUN_ID="x1y2", GITHUB_SHA=SHA, APPTAINER_CONTAINER="/img/a.sif"
    )
    expected = {"slurm.job": "4711", "wandb.run": "x1y2", "ci.sha": SHA[:12], "image": "/img/a.sif"}
    assert found == expected


def test_secrets_and_unusable_values_are_left_out(tmp_path: Path) -> None:
    image = f"https://user:{TOKEN}@registry.example/a"
    assert labels(tmp_path, CONTAINER_IMAGE=image, SLURM_JOB_ID="1\x1b[2J", WANDB_RUN_ID="x" * 999) == {}


def test_the_host_is_a_label_of_training_jobs_on_one_machine(tmp_path: Path) -> None:
    assert "host" not in labels(tmp_path)
    assert labels(tmp_path, None)["host"]
    assert "host" not in labels(tmp_path, None, WORLD_SIZE="16", LOCAL_WORLD_SIZE="8")
    assert "host" not in labels(tmp_path, None, SLURM_NNODES="2")


def test_a_training_job_has_its_versions_and_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert labels(tmp_path, None).keys() == {"python", "host"}
    cuda = SimpleNamespace(is_initialized=lambda: True, get_device_name=lambda: "NVIDIA H100")
    version = SimpleNamespace(cuda="12.4", hip=None)
    torch = SimpleNamespace(__version__="2.6.0+cu124", version=version, cuda=cuda)
    monkeypatch.setitem(sys.modules, "torch", torch)
    found = labels(tmp_path, None)
    assert [found[name] for name in ("python", "torch", "cuda", "gpu")] == [
        platform.python_version(),
        "2.6.0+cu124",
        "12.4",
        "NVIDIA H100",
    ]
    assert not {"python", "torch"} & labels(tmp_path).keys()


def git(folder: Path, *command: str, at_s: int = 0) -> None:
    date = f"@{at_s} +0000"
    environment = {**os.environ, "GIT_COMMITTER_DATE": date, "GIT_AUTHOR_DATE": date}
    named = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *command]
    subprocess.run(named, check=True, env=environment)


def test_an_ingest_is_of_a_commit_only_with_traces_of_this_work_tree_that_are_younger(tmp_path: Path) -> None:
    tree, other = tmp_path / "tree", tmp_path / "other"
    (tree / "runs").mkdir(parents=True)
    (tree / "nested" / ".git").mkdir(parents=True)
    other.mkdir()
    git(tree, "init", "-q", "-b", "topic")
    git(tree, "commit", "-q", "--allow-empty", "-m", "x", at_s=1_700_000_000)

    def is_labeled(at_s: int, *folders: Path) -> bool:
        found = git_labels(tree, Recorded(frozenset(folders), at_s * 10**9))
        assert found == {} or found == git_labels(tree) != {}
        return bool(found)

    assert is_labeled(1_700_000_000, tree / "runs", tree)
    assert not is_labeled(1_699_999_999, tree)
    assert not is_labeled(1_700_000_001, tree, other)
    assert not is_labeled(1_700_000_001, tree / "nested")
    git(tree, "commit", "-q", "--amend", "--allow-empty", "-m", "y", at_s=1_700_000_100)
    assert not is_labeled(1_700_000_050, tree)
    (tree / ".git" / "logs" / "HEAD").unlink()  # then by the time of its files
    assert not is_labeled(1_700_000_200, tree)
    assert is_labeled(int(time.time()) + 1, tree)


def test_ingest_finds_the_commit_of_the_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sketch.write("a 0 gpu s7 gemm 0 7", tmp_path / "traces")
    sketch.write("a 0 gpu s7 gemm 0 7", tmp_path / "tree" / "traces")
    git(tmp_path / "tree", "init", "-q", "-b", "topic")
    git(tmp_path / "tree", "commit", "-q", "--allow-empty", "-m", "x", at_s=1_700_000_000)
    monkeypatch.chdir(tmp_path / "tree")
    monkeypatch.delenv("TW_AUTO_LABELS")
    for name, folder in (("own", "traces"), ("other", "../traces")):
        assert tw("ingest", f"{folder}/a", "--run", name, "-w", "../warehouse").code == 0
    found = {row["run_id"]: dict(row["labels"]) for row in tracewarehouse.open("../warehouse").runs().rows()}
    assert found["own"]["git.branch"] == "topic" and found["other"].keys().isdisjoint({"git.branch"})


def test_ingest_labels_new_runs_and_never_changes_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sketch.write("a 0 gpu s7 gemm 0 7\na 1 gpu s7 gemm 0 7", tmp_path / "traces")
    first, second = sorted((tmp_path / "traces" / "a").iterdir())
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TW_AUTO_LABELS")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    wh, run = tracewarehouse.open("warehouse"), ("--run", "a")

    def stored() -> list[tuple[str, str]]:
        return sorted(dict(wh.runs().rows()[0]["labels"]).items())

    assert tw("ingest", first, *run, "--label", "ci.sha=mine").code == 0
    assert stored() == [("ci.sha", "mine"), ("slurm.job", "1")]
    monkeypatch.setenv("SLURM_JOB_ID", "2")
    assert tw("ingest", first, *run).code == 0
    assert [row["version"] for row in wh.runs().rows()] == [1]
    assert tw("ingest", second, *run).code == 0
    assert stored() == [("ci.sha", "mine"), ("slurm.job", "1")]
    assert wh.select(runs="label:slurm.job=*").selected()[0].run == "a"
    assert tw("ingest", first, "--run", "b", "--no-auto-labels").code == 0
    assert not dict(wh.select(runs="b").runs().rows()[0]["labels"])
