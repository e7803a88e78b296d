"""Labels from the environment: git commit and branch, batch job, experiment run, CI commit, host and image.

Only files and environment variables are read: no network, no subprocess, and on a failure a label is omitted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tracewarehouse.errors import ParamError
from tracewarehouse.formats.redact import Redactor, check_text
from tracewarehouse.late_regex import late_regex

# Label → variables of batch systems, experiment trackers, CI services and container runtimes.
_VARIABLES: Final = {
    "slurm.job": ("SLURM_JOB_ID",),
    "wandb.run": ("WANDB_RUN_ID",),
    "ci.sha": (
        "GITHUB_SHA",
        "CI_COMMIT_SHA",
        "CIRCLE_SHA1",
        "BUILDKITE_COMMIT",
        "BITBUCKET_COMMIT",
        "BUILD_SOURCEVERSION",
        "GIT_COMMIT",
    ),
    "image": (
        "CONTAINER_IMAGE",
        "SLURM_CONTAINER_IMAGE",
        "APPTAINER_CONTAINER",
        "SINGULARITY_CONTAINER",
        "CI_JOB_IMAGE",
    ),
}
_COMMIT: Final = late_regex(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_COMMIT_DIGITS: Final = 12  # as many as Git needs in the largest repositories
_LONGEST: Final = 200


def environment_labels(
    redactor: Redactor, environment: Mapping[str, str], folder: Path, *, is_training: bool
) -> dict[str, str]:
    """The known labels of a process in `folder`; without values that look like secrets.

    In the process of a training job also its W&B run and, if it runs on one machine, the host.
    """
    found = {name: _first(environment, variables) for name, variables in _VARIABLES.items()}
    found["ci.sha"] = _short_commit(found["ci.sha"])
    found |= git_labels(folder)
    if is_training:
        if not found["wandb.run"]:
            # The id of the active run, if the process has imported wandb.
            name = getattr(getattr(sys.modules.get("wandb"), "run", None), "id", None)
            found["wandb.run"] = name if isinstance(name, str) else None
        sizes = [environment.get(name) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")]
        is_alone = sizes[0] == sizes[1] and environment.get("SLURM_NNODES", "1") == "1"
        found["host"] = os.uname().nodename if is_alone else None
    return {name: value for name, value in found.items() if value and _is_storable(redactor, name, value)}


def git_labels(folder: Path) -> dict[str, str | None]:
    """Commit and branch of the repository around a folder; empty outside of one."""
    try:
        git = next((each / ".git" for each in (folder, *folder.parents) if (each / ".git").exists()), None)
        return {} if git is None else _head(_git_folder(git))
    except (OSError, ValueError):
        return {}


def _git_folder(git: Path) -> Path:
    """The folder behind `.git`, which is a file with its path in a worktree or submodule."""
    if git.is_dir():
        return git
    text = git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
    return (git.parent / text).resolve()


def _head(git: Path) -> dict[str, str | None]:
    head = (git / "HEAD").read_text(encoding="utf-8").strip()
    if not head.startswith("ref:"):
        return {"git.commit": _short_commit(head)}
    ref = head.removeprefix("ref:").strip()
    common = git / "commondir"
    shared = (git / common.read_text(encoding="utf-8").strip()).resolve() if common.exists() else git
    return {
        "git.commit": _short_commit(_resolved(shared, ref)),
        "git.branch": ref.removeprefix("refs/heads/"),
    }


def _resolved(git: Path, ref: str) -> str | None:
    """The commit of a ref, from its own file or the packed refs."""
    loose = git / ref
    if ".." in ref.split("/"):
        return None
    if loose.is_file():
        return loose.read_text(encoding="utf-8").strip()
    packed = git / "packed-refs"
    lines = packed.read_text(encoding="utf-8").splitlines() if packed.is_file() else []
    return next((line.split()[0] for line in lines if line.endswith(f" {ref}")), None)


def _short_commit(text: str | None) -> str | None:
    return text[:_COMMIT_DIGITS] if text and _COMMIT.fullmatch(text) else None


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := environment.get(name, "").strip())), None)


def _is_storable(redactor: Redactor, name: str, value: str) -> bool:
    if len(value) > _LONGEST or not value.isprintable():
        return False
    try:
        check_text(redactor, "a label", {name: value})
    except ParamError:
        return False
    return True


def labels_of_process(redactor: Redactor, *, is_training: bool) -> dict[str, str]:
    """The labels of this process and its working folder; none with TW_AUTO_LABELS=0."""
    if os.environ.get("TW_AUTO_LABELS", "1").lower() in ("0", "false", "no", "off"):
        return {}
    try:
        return environment_labels(redactor, os.environ, Path.cwd(), is_training=is_training)
    except OSError:  # the working folder was deleted
        return {}
