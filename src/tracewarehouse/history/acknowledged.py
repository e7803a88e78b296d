"""Acknowledgements: that somebody knows why a metric changed at a run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256

from tracewarehouse.errors import ParamError
from tracewarehouse.metric import Metric
from tracewarehouse.select.chosen import Chosen
from tracewarehouse.storage import Store


@dataclass(frozen=True)
class Acknowledged:
    """Why a metric changed at what a run was (`source`)."""

    metric: str
    run: str
    source: str
    why: str


def name_of(metric: Metric) -> str:
    """The metric as acknowledgements name it: without a version, so that they outlive one."""
    filters = ",".join(sorted(f"{column.name}={value}" for column, value in metric.filters))
    return f"{metric.contract.name}.{metric.column.name}" + (f"[{filters}]" if filters else "")


def acknowledge(store: Store, metric: Metric, run: Chosen, why: str | None) -> None:
    """Keeps why the metric changed at a run; None takes that back. Raises ParamError for an empty text."""
    metric_name, source = name_of(metric), run.version.source
    key = sha256(f"{metric_name}\n{run.run.lower()}\n{source}".encode()).hexdigest()[:16]
    if why is None:
        store.forget_acknowledged(key)
        return
    if not why.strip():
        raise ParamError(f"the acknowledgement of {run.run} says nothing", "say why the metric changed there")
    store.acknowledge(key, json.dumps(vars(Acknowledged(metric_name, run.run, source, why.strip()))).encode())


def acknowledged(store: Store, metric: Metric) -> dict[tuple[str, str], str]:
    """(run, source) → why, for the metric."""
    name = name_of(metric)
    found = [Acknowledged(**json.loads(data)) for data in store.acknowledged()]
    return {(each.run, each.source): each.why for each in found if each.metric == name}
