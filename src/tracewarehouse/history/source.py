"""What a recorded result is of: a run as it was, and an analysis as it is defined and asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from tracewarehouse.catalog import Catalog
from tracewarehouse.contract import Contract
from tracewarehouse.metric.model import BY_STEP
from tracewarehouse.storage import Recorded, RunVersion, run_key


@dataclass(frozen=True)
class Asking:
    """An analysis as this release defines it, with all its parameters at their defaults."""

    contract: Contract
    effective: str
    derived: frozenset[str]

    @classmethod
    def of(cls, contract: Contract, catalog: Catalog) -> Asking:
        """The analysis, with its hash and the derived tables that it reads."""
        below = (each for each in catalog.closure(contract) if each.kind == "table" and each.derived)
        return cls(contract, catalog.effective_hash(contract), frozenset(each.name for each in below))

    @property
    def asks_for_steps(self) -> bool:
        """Whether the analysis tells steps only where a parameter asks for it."""
        return any(param.name == BY_STEP for param in self.contract.params)

    @property
    def definition(self) -> str:
        """The begin of the effective hash, as recorded results have it in their names."""
        return self.effective[:16]

    def params(self, by_step: bool) -> dict[str, object]:
        """What the analysis is run with: steps apart where it can tell them and the run has complete ones."""
        return {BY_STEP: True} if self.asks_for_steps and by_step else {}

    def recorded(self, version: RunVersion, by_step: bool) -> Recorded:
        """What its result for that version of a run is recorded as."""
        return Recorded(
            self.contract.name,
            self.contract.version,
            run_key(version.run),
            self.definition,
            self._asked(version, self.params(by_step)),
            version.source,
        )

    def ways(self, version: RunVersion) -> tuple[Recorded, ...]:
        """What its result may be recorded as, the finer one first."""
        return tuple(dict.fromkeys(self.recorded(version, by_step) for by_step in (True, False)))

    def _asked(self, version: RunVersion, params: Mapping[str, object]) -> str:
        """8 hex digits for the parameters, and for tables that were derived after the trace was read."""
        derived = [
            [source.rank, file.table, file.sha256]
            for source in version.sources
            for file in source.files
            if file.table in self.derived
        ]
        return sha256(json.dumps([sorted(params.items()), sorted(derived)]).encode()).hexdigest()[:8]
