"""What is stored about a source besides its tables: its identity, and the facts that `ranks` shows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tracewarehouse.formats.redact import Policy, clean_name, fingerprint, rules
from tracewarehouse.ingest.naming.header import header_facts, header_of, rank_in_file
from tracewarehouse.ingest.outcome import lost_events
from tracewarehouse.ingest.stored_objects import object_fact
from tracewarehouse.storage import Json, uid

if TYPE_CHECKING:
    from tracewarehouse.contracts.catalog import Catalog
    from tracewarehouse.contracts.contract import Contract
    from tracewarehouse.formats.base import Outcome
    from tracewarehouse.ingest.build_rank import SourceGroup
    from tracewarehouse.ingest.plan import Item
    from tracewarehouse.ingest.stored_sources import Target


def definitions(catalog: Catalog) -> dict[str, int]:
    """The current definition of every stored table."""
    return {contract.name: contract.definition or 0 for contract in _tables(catalog)}


def _tables(catalog: Catalog) -> Sequence[Contract]:
    from tracewarehouse.ingest.tables.build import stored_tables

    return stored_tables(catalog)


def uid_of(group: SourceGroup, item: Item, outcome: Outcome, target: Target) -> str:
    """The identity of a source as its target: content, format, definitions and options."""
    settings = group.settings
    options = {
        "time_unit": settings.time_unit,
        "step_range": settings.step_range,
        "redact": "" if settings.redact else "no",
    }
    return uid(
        outcome.digest,
        target.run,
        target.rank,
        part=item.part.name,
        format=item.format.name,
        format_version=item.format.version,
        definitions=group.stored.definitions,
        options={name: value for name, value in options.items() if value},
    )


def facts_of(
    group: SourceGroup, item: Item, built: Mapping[str, Json], outcome: Outcome, target: Target
) -> dict[str, Json]:
    """The facts that are stored for the rank, the columns of `ranks`; `built` are those of its tables."""
    header, settings = header_of(outcome.header_json), group.settings
    facts: dict[str, Json] = header_facts(header) | {"rank_in_file": rank_in_file(header)}
    facts |= {**outcome.facts, **built}  # type: ignore[dict-item]
    if settings.time_unit is not None:
        facts["time_unit"] = settings.time_unit
    if settings.step_range is not None:
        facts["step_range"] = settings.step_range
    known = outcome.world_size if outcome.world_size is not None else facts["world_size"]
    name = os.fsencode(item.path.name).decode(errors="backslashreplace")
    return facts | {
        "world_size": known if known is not None else target.world_size,
        # A file name may hold any bytes; a table holds text.
        "source_name": clean_name(group.redactor, name),
        **object_fact(item, group.store.salt, outcome),
        "source_bytes": outcome.stored_bytes,
        "status": outcome.status,
        "lost_bytes": sum(loss.byte_to - loss.byte_from for loss in outcome.losses),
        "lost_events": lost_events(outcome),
        "redacted": len(outcome.redactions),
        "redaction": redacted_by(group.policy),
        "tables": {contract.name: [contract.version] for contract in _tables(group.catalog)},
    }


def redacted_by(policy: Policy) -> Json:
    """The version of the redaction rules (0: not redacted), and the hash of the policy (empty for none)."""
    return {"rules": rules(policy).version, "policy": fingerprint(policy)}
