"""What the builders of tables share: results of other builders, columns of tables, paths and sorted look-ups.

A row is the position of an activity, which is its event_id; -1 means none. The arrays of one class are
parallel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cache, lru_cache, reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct

from tracewarehouse.duck.arrow import type_of
from tracewarehouse.formats.base import array_of, values_of
from tracewarehouse.formats.kineto.library import available, library_of_package
from tracewarehouse.formats.source_tables import activity_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Codes, Columns, Ints
    from tracewarehouse.ingest.rules import Rules

    Rows = NDArray[np.int32]
    Flags = NDArray[np.bool_]
    Times = NDArray[np.int64]
    Small = NDArray[np.int8]
    Positions = NDArray[np.integer[Any]]
    Numbers = NDArray[np.int64]


LONGEST: Final = 1024
_BETWEEN: Final = " > "
_CUT: Final = "…"
# Processing a level costs as much as this many single nodes: narrower trees are processed node by node.
_NODES_PER_LEVEL: Final = 32
# Maximum number of cached characters of prefix texts.
_MAX_CACHED_CHARACTERS: Final = 1 << 22
_CACHED_WORDS: Final = 1 << 16


class Paths:
    """Distinct paths; path -1 is empty. `words` are the names.

    The text of a path with more than `LONGEST` names keeps the innermost ones and begins with an ellipsis.
    """

    def __init__(self, words: pa.Array) -> None:
        self._word = lru_cache(_CACHED_WORDS)(lambda word: str(words[word].as_py()))
        self._known: dict[tuple[int, int], int] = {}
        self._last: list[int] = []
        self._prefixes: list[int] = []
        self._names: list[int] = []
        self._texts: dict[int, str] = {}
        self._cached_characters = 0

    def __len__(self) -> int:
        return len(self._last)

    def extended(self, prefix: int, word: int) -> int:
        """The path with one more name at its inner end; the path itself for no name (-1)."""
        if word < 0:
            return prefix
        found = self._known.get((prefix, word))
        if found is None:
            found = self._known[prefix, word] = len(self._last)
            self._last.append(word)
            self._prefixes.append(prefix)
            self._names.append(1 if prefix < 0 else self._names[prefix] + 1)
        return found

    def of_tree(self, parent: NDArray[np.int32], words: NDArray[np.int32]) -> NDArray[np.int32]:
        """The path of each node of a tree: its parent's path and its own name. Parents precede children."""
        level = levels(parent)
        if not level.size or int(level.max()) * _NODES_PER_LEVEL > len(parent):
            codes: list[int] = []
            for above, word in zip(parent.tolist(), words.tolist(), strict=True):
                codes.append(self.extended(codes[above] if above >= 0 else -1, word))
            return np.array(codes, np.int32)
        found = np.full(len(parent) + 1, -1, np.int32)  # the last entry is for no parent
        order = np.argsort(level.astype(np.min_scalar_type(int(level.max()))), kind="stable")
        for nodes in np.split(order, np.cumsum(np.bincount(level)[1:])[:-1]):
            key = (found[parent[nodes]].astype(np.int64) + 1) << 32 | (words[nodes].astype(np.int64) + 1)
            distinct, number = np.unique(key, return_inverse=True)
            codes = [self.extended((each >> 32) - 1, (each & 0xFFFFFFFF) - 1) for each in distinct.tolist()]
            found[nodes] = np.array(codes, np.int32)[number]
        return found[:-1]

    def of_names(self, words: Iterable[int]) -> int:
        """The path of these names, outermost first."""
        return reduce(self.extended, words, -1)

    def lengths(self, paths: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """The number of names in the text of each path."""
        names = np.minimum(np.array([*self._names, 0], np.int64), LONGEST)
        found: NDArray[np.int64] = names[paths]
        return found

    def texts(self, paths: Iterable[int]) -> list[str]:
        """The text of each path."""
        return [self._text(path) for path in paths]

    def _text(self, path: int) -> str:
        prefix = self._prefixes[path]
        last = self._word(self._last[path])
        if prefix < 0:
            return last
        if self._names[path] > LONGEST:
            return self._full_text(path)
        above = self._texts.get(prefix)
        if above is None:
            above = self._full_text(prefix)
            if self._cached_characters > _MAX_CACHED_CHARACTERS:
                self._texts.clear()
                self._cached_characters = 0
            self._texts[prefix] = above
            self._cached_characters += len(above)
        return f"{above}{_BETWEEN}{last}"

    def _full_text(self, path: int) -> str:
        names: list[str] = []
        last, prefix, word = self._last, self._prefixes, self._word
        while path >= 0 and len(names) < LONGEST:
            names.append(word(last[path]))
            path = prefix[path]
        if path >= 0:
            names.append(_CUT)
        names.reverse()
        return _BETWEEN.join(names)


def levels(parent: NDArray[np.int32]) -> NDArray[np.int32]:
    """The depth of each node, 1 for a root, by following ancestors twice as far in each round."""
    level, above = np.ones(len(parent), np.int32), parent.copy()
    active = np.flatnonzero(above >= 0)
    while active.size:
        ancestor = above[active]
        further = above[ancestor]
        level[active] += level[ancestor]
        above[active] = further
        active = active[further >= 0]
    return level


PASSES: Final = ("forward", "backward", "recompute", "optimizer", "data", "other")
# Prefix of the Python frames of modules, and text in the frames in which checkpointing runs a forward again.
MODULE_FRAME: Final = "nn.Module: "
# How annotations of PyTorch's data loader begin.
LOADER: Final = "enumerate(DataLoader)#"
RECOMPUTE_FRAME: Final = ": recompute_fn"
# Prefix of the operators of the autograd engine, and the one that runs a forward again.
ENGINE_OPERATOR: Final = "autograd::engine::evaluate_function: "
CHECKPOINT_OPERATOR: Final = f"{ENGINE_OPERATOR}CheckpointFunctionBackward"


class Nesting(Struct, frozen=True):
    """Host slices in nesting order; the slice at position i has `pre` = i + 1.

    `post` is the `pre` of its last descendant, or its own if it has none. Lane k has the positions from
    `lanes[k]` to `lanes[k + 1]`; `threads[k]` has the number of the rank, whether the lane holds annotations,
    and its process and thread, empty if unknown. Ranks follow one another. The rest of the tree is in the
    columns that `nest` adds.
    """

    rows: Rows
    lanes: NDArray[np.int64]
    threads: Sequence[tuple[int, bool, str, str]]
    post: NDArray[np.int32]


class Calls(Struct, frozen=True):
    """Calls of a GPU runtime on host threads, in row order."""

    rows: Rows
    ts_ns: Times
    end_ns: Times
    pre: NDArray[np.int32]
    post: NDArray[np.int32]
    correlation: Ints

    def part(self, some: slice) -> Calls:
        """Some of the calls."""
        ids, valid = self.correlation
        times = self.ts_ns[some], self.end_ns[some]
        links = type(self.correlation)(ids[some], valid[some])
        return Calls(self.rows[some], *times, self.pre[some], self.post[some], links)


class LaunchState(IntEnum):
    """Whether the launch of a GPU activity is known, and if not why; the values of `kernels.launch_state`."""

    KNOWN = 0
    BEFORE_WINDOW = 1
    MISSING = 2


class Via(IntEnum):
    """What links a GPU activity to its launch."""

    CORRELATION = 0
    FLOW = 1


class Launches(Struct, frozen=True):
    """GPU activities with valid times in row order, and the call that launched each.

    `device` and `stream` are -1 if unknown. `dur_ns` is the duration in the file, cut where it is malformed
    (`recording.clipped`). `runtime` is the row of the call and `via` one of Via, both -1 if
    the launch is unknown; `call_ts_ns` is then 0 and `is_graph` False. `state` is one of LaunchState.
    """

    rows: Rows
    device: NDArray[np.int64]
    stream: NDArray[np.int64]
    ts_ns: Times
    dur_ns: Times
    runtime: Rows
    call_ts_ns: Times
    state: Small
    is_graph: Flags
    via: Small

    def part(self, some: Positions | Flags | slice) -> Launches:
        """Some of the GPU activities."""
        return Launches(*(getattr(self, name)[some] for name in self.__struct_fields__))

    @property
    def end_ns(self) -> Times:
        """The end of each."""
        return self.ts_ns + self.dur_ns

    def lanes(self, columns: Columns) -> Numbers:
        """A number per device and stream of a rank."""
        return group_numbers(self.stream, self.device, columns.rank_index(self.rows))


class StepAnnotations(Struct, frozen=True):
    """Slices that mark steps, in row order; `inferred`: by rules, not `ProfilerStep#N`.

    They are on the host, or `on_device`: a GPU activity is then in the step that contains its start.
    """

    rows: Rows
    step: NDArray[np.int64]
    start_ns: Times
    end_ns: Times
    inferred: bool = False
    on_device: bool = False


class Attribution(Struct, frozen=True):
    """What each call is attributed to; rows are -1 for none.

    `call_op` is the innermost enclosing operator of every call. The other arrays are parallel to `calls`, the
    calls that launched GPU activities: `pass_` is an index into `PASSES`, `path` one of `paths`, -1 for the
    empty path.
    """

    call_op: Rows
    calls: Rows
    op: Rows
    top_op: Rows
    collective: Rows
    module: Rows
    annotation: Rows
    pass_: Small
    path: NDArray[np.int32]
    paths: Paths


class RuleHits(NamedTuple):
    """The rows that a rule applies to, and the time affected by each; None if the rule affects no time."""

    rows: Positions
    ns: Ints | Numbers | None = None


class QualityInput(Struct, frozen=True):
    """What the rules of `data_quality` read: the activities and the results of builders.

    `flows_without_start` are the rows of `flows` without a start.
    """

    columns: Columns
    rules: Rules
    calls: Calls
    launches: Launches
    flows_without_start: Positions
    step_annotations: Sequence[StepAnnotations] = ()


# Columns that every stored table has and that the writer adds.
KEYS: Final = ("run_id", "rank")
# Number of rows that are processed at once in a large rank.
SLAB_ROWS: Final = 1 << 20
# Correlation and external ids that mean no id: zero, unset, and the largest numbers of 32 and 63 bits.
SENTINEL_IDS: Final = (0, -1, 2**32 - 1, 2**63 - 1)
_BIGINT: Final = pa.int64()


@cache
def schemas(rules: Rules) -> dict[str, pa.Schema]:
    """Stored table → its columns without `KEYS`, nullable as declared."""
    return {
        contract.name: pa.schema(
            [pa.field(c.name, type_of(c.type), c.null) for c in contract.columns if c.name not in KEYS]
        )
        for contract in rules.catalog.stored_tables()
    }


def slabs(count: int, slab_rows: int | None = None, first_row: int = 0) -> Iterator[slice]:
    """Consecutive slabs of all rows."""
    slab_rows = slab_rows or SLAB_ROWS
    for low in range(first_row, count, slab_rows):
        yield slice(low, min(low + slab_rows, count))


def is_slice(columns: Columns) -> Flags:
    """Whether each row has a start and a duration: phase X, or B with a matching E row."""
    return columns.is_one_of("ph", ("X", "B")) & columns.valid("dur_ns")


def flags(found: pa.Array) -> Flags:
    """A BOOLEAN array without nulls."""
    return found.to_numpy(zero_copy_only=False).astype(np.bool_)  # type: ignore[no-any-return]


def has_role(columns: Columns, rules: Rules, *roles: str) -> Flags:
    """Whether the category of each row has one of these roles; False without a category."""
    return columns.is_one_of("category", categories_with_role(rules, *roles))


def categories_with_role(rules: Rules, *roles: str) -> list[str]:
    """The categories that have one of these roles."""
    return [category for category, role in rules.roles.items() if role in roles]


def used_texts(names: Codes) -> tuple[Positions, list[str]]:
    """The codes that occur, in ascending order, and their texts."""
    used = np.flatnonzero(np.bincount(names.codes + 1)[1:])
    return used, names.words.take(pa.array(used)).to_pylist()


def text_codes(column: pa.Array) -> tuple[NDArray[np.int32], pa.Array]:
    """The codes of a text column, -1 for null, and the words that they index."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    codes = values_of(encoded.indices, -1)
    return codes.astype(np.int32, copy=False), encoded.dictionary


def distinct_combinations(*codes: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first row of each distinct combination of codes (-1 or more), and the combination of each row."""
    number = np.zeros(len(codes[0]), np.int64)
    for each in codes:
        # A hash table is faster than sorting: few combinations are distinct.
        found = pa.array((number << 32) | (each.astype(np.int64) + 1)).dictionary_encode()
        number = found.indices.to_numpy().astype(np.int64)
    rows = np.arange(len(number) - 1, -1, -1)
    first = np.zeros(int(number.max(initial=-1)) + 1, np.int64)
    first[number[rows]] = rows  # the last one stays
    return first, number


def start_and_end(columns: Columns, rows: Positions | slice) -> tuple[Times, Times]:
    """The times of slices."""
    start = columns.ints("ts_ns", rows).values
    return start, start + columns.ints("dur_ns", rows).values


def window(columns: Columns, selected: Flags, rows: slice = slice(None)) -> tuple[int, int]:
    """The first start and the last end of the selected slices; without any, the end precedes the start.

    Only those among `rows`; `selected` has an entry for every row.
    """
    first, last = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    low, high, _ = rows.indices(columns.rows)
    for part in slabs(high, first_row=low):
        starts, ends = (times[selected[part]] for times in start_and_end(columns, part))
        first = min(first, int(starts.min(initial=first)))
        last = max(last, int(ends.max(initial=last)))
    return first, last


def thread_numbers(columns: Columns, rows: Positions) -> Numbers:
    """A number per process and thread; see `is_known`."""
    pid, tid = columns.codes("pid", rows).codes, columns.codes("tid", rows).codes
    return columns.apart(pid.astype(np.int64) << 32 | (tid.astype(np.int64) + 1), rows)


def is_known(threads: Numbers) -> Flags:
    """Whether both process and thread of each number are known."""
    return (threads >= 0) & (threads & 0xFFFFFFFF > 0)


def latest_on_thread(columns: Columns, rows: Positions, starts: Times, wanted: Rows, times: Times) -> Numbers:
    """The index of the last row that starts on the thread of each wanted one by its time; -1 for none."""
    threads = thread_numbers(columns, wanted)
    latest = last_before(thread_numbers(columns, rows), starts, threads, times)
    latest[~is_known(threads)] = -1
    return latest


def pairing_ids(columns: Columns, rows: Positions | slice) -> Ints:
    """The correlation ids that can link rows: not null, not negative and not a sentinel."""
    ids = columns.ints("correlation", rows)
    valid = ids.valid & (ids.values > 0) & ~np.isin(ids.values, SENTINEL_IDS)
    return type(ids)(columns.apart(ids.values, rows), valid)


def bigint_column(values: NDArray[np.integer[Any]], valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """A BIGINT column, null where not valid."""
    return array_of(values.astype(np.int64, copy=False), valid)


def id_column(values: NDArray[np.integer[Any]]) -> pa.Array:
    """A BIGINT column of event ids, null where -1."""
    return bigint_column(values, values >= 0)


def encoded_texts(codes: NDArray[np.integer[Any]], words: Sequence[str] | pa.Array) -> pa.Array:
    """A dictionary-encoded VARCHAR column of codes that index words; null for -1 or a null word."""
    known = words if isinstance(words, pa.Array) else pa.array(list(words), pa.string())
    # Parquet allows no null in a dictionary; code -1 reads the last entry.
    none = np.append(np.asarray(known.is_null()), True)
    indices = array_of(codes.astype(np.int32, copy=False), ~np.take(none, codes, mode="wrap"))
    return pa.DictionaryArray.from_arrays(indices, known.fill_null(""))


def indexed_texts(texts: Sequence[str | None], indexes: Positions) -> pa.Array:
    """The text at each index, dictionary-encoded."""
    codes, words = text_codes(pa.array(texts, pa.string()))
    return encoded_texts(codes[indexes], words)


def selected_columns(
    columns: Columns, rows: Positions | slice, names: Mapping[str, str] | Iterable[str]
) -> dict[str, pa.Array]:
    """The given rows of columns in the types of the contracts; a mapping has name in the table → column."""
    sources = names if isinstance(names, Mapping) else {name: name for name in names}
    return {name: _typed(source, columns.arrow(source, rows)) for name, source in sources.items()}


def _typed(name: str, column: pa.Array) -> pa.Array:
    if isinstance(column.type, pa.BaseExtensionType):
        return column.storage
    if pa.types.is_integer(column.type) and column.type != _BIGINT:
        return column.cast(_BIGINT)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.bool_() if name == "crosses" else activity_type(name))
    return column


def enclosing(starts: Times, ends: Times, lanes: Positions) -> NDArray[np.int32]:
    """The parent of each interval: the last one before it in its lane that ends after its start; -1 for none.

    Starts ascend within a lane, so an interval that ends after a later start was open at every start in
    between. Lane k has the positions from `lanes[k]` to `lanes[k + 1]`.
    """
    parent = np.empty(len(starts), np.int32)
    starts, ends, lanes = (np.ascontiguousarray(each, np.int64) for each in (starts, ends, lanes))
    if available():
        addresses = (each.ctypes.data for each in (lanes, starts, ends, parent))
        library_of_package().tw_enclosing(len(lanes) - 1, *addresses)
        return parent
    found: list[int] = []
    given = starts.tolist(), ends.tolist(), np.repeat(lanes[:-1], np.diff(lanes)).tolist()
    for position, (start, first) in enumerate(zip(given[0], given[2], strict=True)):
        at = position - 1
        while at >= first and given[1][at] <= start:
            at = found[at]
        found.append(at if at >= first else -1)
    return np.array(found, np.int32)


def last_descendants(parent: NDArray[np.int32]) -> NDArray[np.int32]:
    """The position of the last descendant of each interval of `enclosing`, or its own if it has none."""
    last = np.arange(len(parent), dtype=np.int32)
    if available():
        library_of_package().tw_last_descendants(len(parent), parent.ctypes.data, last.ctypes.data)
        return last
    found, parents = last.tolist(), parent.tolist()
    for position in range(len(found) - 1, -1, -1):
        if (above := parents[position]) >= 0:
            found[above] = max(found[above], found[position])
    return np.array(found, np.int32)


def last_reaching(
    ends: NDArray[np.int64], before: Positions, times: NDArray[np.int64], inclusive: bool = False
) -> NDArray[np.int64]:
    """The last position less than `before` whose end is greater than the time, or equal if `inclusive`.

    -1 for none. Climbs a tree of maxima and descends again: logarithmic time per query.
    """
    reaches = np.greater_equal if inclusive else np.greater
    node = before.astype(np.int64) - 1
    level_of = np.full(len(node), -1, np.int8)
    active = np.flatnonzero(node >= 0)
    near = reaches(ends[node[active]], times[active])  # usually it is the very last
    level_of[active[near]] = 0
    active = active[~near]
    active = active[node[active] > 0]
    tree = _maxima(ends) if active.size else []
    for level, maxima in enumerate(tree):
        left = node[active] - 1
        hit = ((left & 1) == 0) & reaches(maxima[left], times[active])
        node[active[hit]] -= 1
        level_of[active[hit]] = level
        active = active[~hit]
        node[active] >>= 1
        active = active[node[active] > 0]
    for level in range(len(tree) - 1, 0, -1):
        below = tree[level - 1]
        selected = np.flatnonzero(level_of == level)
        right = 2 * node[selected] + 1
        there = right < len(below)
        there &= reaches(below[np.minimum(right, len(below) - 1)], times[selected])
        node[selected] = right - ~there
        level_of[selected] = level - 1
    node[level_of < 0] = -1
    return node


def _maxima(values: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The values, and above them the maxima of pairs, up to the overall maximum."""
    tree = [values]
    while len(tree[-1]) > 1:
        low = tree[-1]
        pairs = np.maximum(low[0 : len(low) - 1 : 2], low[1::2])
        tree.append(np.append(pairs, low[-1:]) if len(low) % 2 else pairs)
    return tree


def last_before(
    groups: Positions,
    times: NDArray[np.int64],
    query_groups: Positions,
    query_times: NDArray[np.int64],
) -> NDArray[np.int64]:
    """For each query the last item of its group at or before its time, -1 for none.

    Of items with equal times the last in the input counts.
    """
    count = len(groups)
    group, time = np.concatenate((groups, query_groups)), np.concatenate((times, query_times))
    is_query = np.repeat(np.array([False, True]), (count, len(query_groups)))
    order = np.lexsort((is_query, time, group))
    is_item = order < count
    position = np.maximum.accumulate(np.where(is_item, np.arange(len(order)), -1))[~is_item]
    item = np.where(position >= 0, order[position], -1) if count else np.full(len(position), -1)
    found = np.empty(len(query_groups), np.int64)
    found[order[~is_item] - count] = item
    same = found >= 0
    same[same] = groups[found[same]] == query_groups[same]
    return np.where(same, found, -1)


def last_of(groups: Positions, wanted: Positions) -> NDArray[np.int64]:
    """The last item of each wanted group, -1 for none."""
    same = np.zeros(len(groups) + len(wanted), np.int64)
    return last_before(groups, same[: len(groups)], wanted, same[len(groups) :])


def are_repeated(values: NDArray[Any]) -> Flags:
    """Whether each of some sorted values equals the one before or after it."""
    same = np.flatnonzero(values[1:] == values[:-1])
    found = np.zeros(len(values), np.bool_)
    found[same] = found[same + 1] = True
    return found


def begin_group(groups: NDArray[Any]) -> Flags:
    """Whether each of some rows, which are sorted by group, is the first of its group."""
    begins = np.ones(len(groups), np.bool_)
    begins[1:] = groups[1:] != groups[:-1]
    return begins


def last_so_far(order: Positions, begins: Flags) -> Numbers:
    """Of the rows of each group up to each one, the row that comes last in the order; see `begin_group`."""
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    # The offset ascends from group to group, so that one running maximum stays within each group.
    offset = np.cumsum(begins) * len(order)
    found: Numbers = order[np.maximum.accumulate(rank + offset) - offset]
    return found


def latest_before(groups: NDArray[Any], ends: Numbers) -> tuple[Numbers, Flags]:
    """For rows sorted by group: the latest end of earlier rows of the group, and whether there are any."""
    begins = begin_group(groups)
    latest = ends[last_so_far(np.argsort(ends, kind="stable"), begins)]
    return np.append(ends[:1], latest[:-1]), ~begins


def covered_ns(owner: Positions, start: Times, dur: Times, count: int) -> Times:
    """Time covered by the intervals of each owner."""
    found = np.zeros(count, np.int64)
    order = np.lexsort((start, owner))
    owner, start, end = owner[order], start[order], start[order] + dur[order]
    latest, has_earlier = latest_before(owner, end)
    begin = np.where(has_earlier, np.maximum(start, latest), start)
    np.add.at(found, owner, np.maximum(end - begin, 0))
    return found


def group_numbers(*keys: NDArray[Any]) -> NDArray[np.int64]:
    """A number for each distinct combination of keys."""
    order = np.lexsort(keys)
    if not order.size:
        return order
    new = np.zeros(len(order), np.bool_)
    for key in keys:
        ordered = key[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(new)
    return numbers
