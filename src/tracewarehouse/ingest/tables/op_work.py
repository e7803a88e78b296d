"""Table `op_work`: FLOP and bytes of operators, and the GPU activities launched inside them.

An operator counts if its name has a rule and no operator that encloses it has one. Formulas run once per
distinct combination of name, shapes, types, strides and values; all else is computed by column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tracewarehouse.ingest.tables.attribution import passes
from tracewarehouse.ingest.tables.kernels import KINDS, call_indexes
from tracewarehouse.ingest.tables.model import (
    PASSES,
    bigint_column,
    covered_ns,
    distinct_combinations,
    encoded_texts,
    flags,
    id_column,
    indexed_texts,
    selected_columns,
    text_codes,
)
from tracewarehouse.ingest.tables.nesting import OPERATOR_CATEGORY
from tracewarehouse.ingest.tables.work_formulas import Inputs, Work, work_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.kernels import Classes
    from tracewarehouse.ingest.tables.model import (
        Attribution,
        Flags,
        Launches,
        Nesting,
        Positions,
        Rows,
        Times,
    )

# Kernels that move or reduce data beside the main kernel of an operator, by name.
_SIDE_KERNEL: Final = "(?i)memcpy|memset|copy|fill|reduce|elementwise"
_WITH_TF32: Final = ("gemm", "conv", "attention")
_COMPUTE_TYPES: Final = {
    "double": "fp64", "float": "fp32", "half": "fp16", "bfloat16": "bf16", "char": "int8",
    "signed char": "int8", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "float8_e4m3fnuz": "fp8",
    "float8_e5m2fnuz": "fp8",
}  # fmt: skip
# Fields of `Work`.
_NUMBERS: Final = ("model_flop", "hardware_flop", "read_bytes", "write_bytes")
_TEXTS: Final = ("dtype", "bound", "reason")
_OF_HLO: Final = ("family", *_NUMBERS, "dtype", "bound", "compute_dtype", "dtype_known")
_INPUTS: Final = """
SELECT
  args ->> '$."Concrete Inputs"' AS input_values,
  args ->> '$."Input Strides"' AS strides
FROM given
"""


class _Counted(Struct, frozen=True):
    """The operators that count, in nesting order: rows, and their positions up to the last descendant."""

    rows: Rows
    first: Times
    last: Times


def op_work(
    columns: Columns,
    rules: Rules,
    nesting: Nesting,
    launches: Launches,
    attribution: Attribution,
    classes: Classes,
    device_names: Sequence[str | None] = (None,),
) -> pa.Table | None:
    """Table `op_work` in row order; None without an operator that counts. `device_names`: of each rank."""
    counted = _counted_operators(columns, rules, nesting)
    if not len(counted.rows):
        return None
    on_gpu, main = _on_gpu(columns, counted, launches, attribution, classes)
    order = np.argsort(counted.rows, kind="stable")
    rows = counted.rows[order]
    number, works, families = _works(columns, rules, rows)
    main = main[order]
    compute, known = _compute_types(columns, rules, number, works, families, main)
    return pa.table(
        {
            "event_id": bigint_column(rows),
            **selected_columns(columns, rows, ["name", "step"]),
            "family": indexed_texts(families, number),
            **_formula_columns(works, number),
            "compute_dtype": compute,
            "dtype_known": pa.array(known),
            **{name: bigint_column(values[order]) for name, values in on_gpu.items()},
            "main_kernel_id": id_column(main),
            "pass": encoded_texts(passes(columns, nesting, counted.first)[order], PASSES),
            "device_name": indexed_texts(device_names, columns.rank_index(rows)),
        }
    )


def hlo_work(
    columns: Columns, launches: Launches, hlo: pa.Table, device_names: Sequence[str | None]
) -> pa.Table | None:
    """Table `op_work` of GPU activities with FLOP or bytes in a profile of JAX; None without any."""
    counted = flags(hlo["bound"].is_valid()) & (launches.dur_ns > 0)
    rows, dur = launches.rows[counted], launches.dur_ns[counted]
    if not len(rows):
        return None
    found = dict.fromkeys(("event_id", "main_kernel_id"), bigint_column(rows))
    found |= dict.fromkeys(("gpu_overlap_ns", "other_sum_ns"), bigint_column(dur * 0))
    found |= {"gpu_union_ns": bigint_column(dur), "kernel_count": bigint_column(dur * 0 + 1)}
    found |= selected_columns(columns, rows, ["name", "step"])
    found["device_name"] = indexed_texts(device_names, columns.rank_index(rows))
    work = hlo.filter(pa.array(counted))
    found["pass"] = pc.fill_null(work["pass"].cast(pa.string()), "other")
    return pa.table({**{name: work[name] for name in _OF_HLO}, **found})


def _counted_operators(columns: Columns, rules: Rules, nesting: Nesting) -> _Counted:
    """Operators with a rule, without those inside another one."""
    rule_of = np.append(_rule_numbers(columns.words("name"), rules), -1)
    ruled = rule_of >= 0
    leaves = np.append([rule.leaf_only for rule in rules.work], False).astype(np.bool_)[rule_of]
    is_op = columns.is_one_of("category", [OPERATOR_CATEGORY], nesting.rows)
    words = columns.codes("name", nesting.rows).codes
    first = np.flatnonzero(is_op & ruled[words])
    last = nesting.post[first].astype(np.int64) - 1
    if leaves[words[first]].any():
        ops = np.cumsum(is_op)
        kept = ~leaves[words[first]] | (ops[last] == ops[first])
        first, last = first[kept], last[kept]
    reached = np.maximum.accumulate(np.concatenate(([-1], last)))[:-1]
    outermost = first > reached
    first, last = first[outermost], last[outermost]
    return _Counted(nesting.rows[first], first, last)


def _rule_numbers(names: pa.Array, rules: Rules) -> Positions:
    """The index in `rules.work` of each name's rule, -1 without one."""
    exact = pc.index_in(names, value_set=pa.array([rule.name for rule in rules.work]))
    found: Positions = pc.fill_null(exact, -1).to_numpy(zero_copy_only=False).astype(np.int32)
    for number, rule in enumerate(rules.work):
        if rule.is_prefix:
            found[flags(pc.starts_with(names, rule.name))] = number
    return found


def _on_gpu(
    columns: Columns,
    counted: _Counted,
    launches: Launches,
    attribution: Attribution,
    classes: Classes,
) -> tuple[dict[str, Times], Rows]:
    """Columns and the main kernel (-1 for none) of each counted operator.

    They are of the GPU activities whose launch has its innermost operator inside it.
    """
    op = np.append(attribution.op, np.int32(-1))[call_indexes(attribution, launches.runtime)]
    place = np.where(op >= 0, columns.ints("pre").values[op].astype(np.int64) - 1, -1)
    owner = np.searchsorted(counted.first, place, side="right") - 1
    inside = (owner >= 0) & (place >= 0)
    inside[inside] = place[inside] <= counted.last[owner[inside]]
    owner, rows = owner[inside], launches.rows[inside]
    start, dur = launches.ts_ns[inside], launches.dur_ns[inside]
    count = len(counted.rows)
    total, other = np.zeros((2, count), np.int64)
    np.add.at(total, owner, dur)
    is_other = classes.kind[inside] != np.int8(KINDS.index("computation"))
    np.add.at(other, owner[is_other], dur[is_other])
    union = covered_ns(owner, start, dur, count)
    found = {"kernel_count": np.bincount(owner, minlength=count), "gpu_union_ns": union}
    found |= {"gpu_overlap_ns": total - union, "other_sum_ns": other}
    return found, _main_kernels(columns, owner, rows, dur, count)


def _main_kernels(columns: Columns, owner: Positions, rows: Rows, dur: Times, count: int) -> Rows:
    """The longest activity of each owner that no name makes a side kernel, else the longest."""
    words, number = np.unique(columns.codes("name", rows).codes, return_inverse=True)
    names = columns.words("name").take(pa.array(words, mask=words < 0))
    side = pc.fill_null(pc.match_substring_regex(names, _SIDE_KERNEL), False)
    order = np.lexsort((-rows, dur, ~flags(side)[number], owner))
    found = np.full(count, -1, np.int32)
    found[owner[order]] = rows[order]  # the last of an owner wins
    return found


def _works(
    columns: Columns, rules: Rules, rows: Rows
) -> tuple[Positions, Sequence[Work], Sequence[str | None]]:
    """The index of each row in the distinct works, these, and their families."""
    name, names = text_codes(columns.arrow("name", rows))
    texts = [columns.arrow("shapes", rows), columns.arrow("dtypes", rows)]
    texts += _values_and_strides(columns.texts("args", rows), rules)
    coded = [text_codes(_plain(each)) for each in texts]
    first, number = distinct_combinations(name, *(codes for codes, _ in coded))
    rule_of = _rule_numbers(names, rules)
    works: list[Work] = []
    families: list[str | None] = []
    for at in first.tolist():
        rule = rules.work[rule_of[name[at]]]
        values = [words[int(codes[at])].as_py() if codes[at] >= 0 else None for codes, words in coded]
        works.append(work_of(Inputs(names[int(name[at])].as_py(), rules.element_bytes, *values), rule))
        families.append(rule.family)
    return number, works, families


def _values_and_strides(args: pa.Array, rules: Rules) -> list[pa.Array]:
    """The values and the strides of each row's inputs as JSON; only arguments that have them are parsed."""
    recorded = pc.fill_null(pc.match_substring_regex(args, '"(Concrete Inputs|Input Strides)"'), False)
    there = flags(recorded)
    if not there.any():
        return [pa.nulls(len(args), pa.string())] * 2
    found = rules.query(_INPUTS, pa.table({"args": args.filter(recorded)}))
    place = pa.array(np.cumsum(there) - 1, mask=~there)
    return [_plain(found.column(each)).take(place) for each in ("input_values", "strides")]


def _plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The texts without an extension type, as one array."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.cast(pa.string()) if pa.types.is_null(column.type) else column


def _compute_types(
    columns: Columns,
    rules: Rules,
    number: Positions,
    works: Sequence[Work],
    families: Sequence[str | None],
    main: Rows,
) -> tuple[pa.Array, Flags]:
    """The type of the arithmetic of each row, and whether it is known."""
    types = [
        _COMPUTE_TYPES.get(work.dtype or "") if family in _WITH_TF32 else None
        for work, family in zip(works, families, strict=True)
    ]
    single = np.array([each == "fp32" for each in types], np.bool_)[number]
    words, kernel = np.unique(columns.codes("name", main[single]).codes, return_inverse=True)
    names = columns.words("name")
    uses = rules.uses_tensor_cores([names[int(word)].as_py() if word >= 0 else None for word in words])
    tf32 = np.zeros(len(number), np.bool_)
    known = np.ones(len(number), np.bool_)
    ran = main[single] >= 0
    tf32[single] = np.array([each is True for each in uses], np.bool_)[kernel] & ran
    known[single] = np.array([each is not None for each in uses], np.bool_)[kernel] & ran
    words_of = list(dict.fromkeys([*filter(None, types), "tf32"]))
    codes = np.array([words_of.index(each) if each else -1 for each in types], np.int32)[number]
    codes[tf32] = words_of.index("tf32")
    return encoded_texts(codes, words_of), known


def _formula_columns(works: Sequence[Work], number: Positions) -> dict[str, pa.Array]:
    """The results of the formulas, by row."""
    place = pa.array(number)

    def numbers(values: list[int | None]) -> pa.Array:
        return pa.array(values, pa.int64()).take(place)

    sizes = [work.matrix or (None,) * 4 for work in works]
    matrix = {name: numbers([size[at] for size in sizes]) for at, name in enumerate(("m", "n", "k", "batch"))}
    return {
        **matrix,
        **{name: numbers([getattr(work, name) for work in works]) for name in _NUMBERS},
        **{name: indexed_texts([getattr(work, name) for work in works], number) for name in _TEXTS},
    }
