"""Thresholds, patience and sizes: they trade speed for memory or disk, and never change an answer.

`current` holds the values in force. Read a field where it is used, once per batch and never per row:
`tuning.current.batch_rows`. To run with other values, name the fields:

    with tuning.using(spill_file_bytes=0, compact_after=0):
        ...

Each process has its own `current`: Spark workers run with the defaults.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Tuning:
    """Every value that may be tuned, with its default."""

    # Reading and writing

    batch_rows: int = 131_072
    """Most rows that an operator takes at a time when k is `auto`, and rows in a block of a columnar file."""
    text_block_bytes: int = 4 << 20
    """Bytes to read from a CSV or JSON file at a time."""
    columnar_block_bytes: int = 32 << 20
    """Bytes that a block of a columnar file should have at most after decoding."""
    task_block_rows: int = 524_288
    """Most rows in a block of a columnar file that a task of Spark reads; the bytes limit it too."""
    file_piece_bytes: int = 4 << 20
    """Bytes of a file from which several Spark tasks may share it."""
    json_kernel_bytes: int = 1 << 16
    """Blocks of JSON lines that are shorter are left to Arrow: loading the kernel would cost more."""
    live_block_bytes: int = 1 << 20
    """Bytes to read from a socket, a pipe or a spool before the engine processes them."""
    row_group_rows: int = 65_536
    """Rows that a columnar sink collects before it writes them as one group."""
    poll_seconds: float = 0.02
    """Pause before a runner asks sources again that had no rows."""
    kafka_survey_seconds: float = 0.05
    """Pause between two questions to Kafka for the ends of the partitions."""
    control_seconds: float = 0.2
    """Pause between two looks of a runner at the control log."""
    followed_files: int = 64
    """Growing files whose positions are stored in every checkpoint; positions of older ones go to a log."""
    quiet_looks: int = 3000
    """Looks at a directory without growth after which a file counts as finished growing."""
    finished_log_bytes: int = 1 << 20
    """Outdated bytes in the log of finished files before it is rewritten."""
    checkpoint_chain: int = 32
    """Incremental checkpoints after which a full one is written, so that a restart reads few files."""
    driver_bytes: int = 1 << 20
    """Bytes of the results of one shard for one query in a micro-batch, up to which the driver takes them."""
    lock_seconds: float = 10.0
    """How long to wait for a checkpoint that a killed Spark driver still holds."""

    # Scheduling

    selectivity_rows: int = 64
    """Rows that an operator must have taken before its selectivity is measured again."""
    link_margin: float = 1.1
    """By how much an operator must give more rows than it takes to hold others back, or fewer to stop."""
    turn_steps: int = 32
    """Steps that a component with a share may do in a turn, and by which one with priority may be ahead."""
    chart_steps: int = 256
    """Steps of operators after which Chain measures selectivities again."""

    # Housekeeping of state

    compact_after: int = 256
    """Dead entries, beyond a share of the live ones, that state may hold before it is compacted."""
    idle_keys: int = 1024
    """Keys beyond those in use that an index of keys or values may hold before unused ones are dropped."""
    order_gain: float = 0.95
    """Rows wait for order elsewhere if they are at most this share of the bytes there."""
    early_copies: int = 16
    """In how many windows a row may be for closed groups to be answered before their windows end."""
    shrink_above: int = 4096
    """Entries up to which an array keeps its spare room."""
    match_room: int = 1024
    """Matches that a join or a sequence has room for before its kernel must be called again."""
    merge_rows: int = 1024
    """Rows below which a stable sort is always fast enough."""
    merge_run: int = 32
    """Mean length of sorted runs from which merging them is faster than sorting packed words."""

    # Sliding windows, top-n, granularity

    pane_chunk: int = 1 << 17
    """Entries of panes that one walk over closed windows may return."""
    pane_windows: int = 1 << 12
    """Windows that one walk over closed windows may return."""
    pane_reserve: int = 8
    """How many times its size a ring of panes reserves; pages are only used once they are written."""
    skyband_limit: int = 64
    """Largest n for which top-n tries a skyband instead of a tree of all rows."""
    skyband_entries: int = 256
    """Rows that a group's skyband may hold before top-n changes to trees."""
    skyband_room: int = 64
    """Entries that the pool of all skybands has room for at first."""
    granularity_sample: int = 1 << 15
    """Pending ends to look at when estimating how much memory a coarser granularity saves."""

    # Spilling and the memory budget

    spill_file_bytes: int = 1 << 20
    """Bytes of state below which a spill file is not worth writing."""
    mapped_array_bytes: int = 1 << 16
    """Bytes below which an array is not worth a memory-mapped file."""
    budget_target: float = 0.9
    """Share of the memory budget that predicted use may fill."""
    budget_reserve: float = 0.97
    """Share that predicted use may fill before windows are set to their smallest size."""
    budget_failure: float = 1.05
    """Share at which a run fails, if its policy is to fail."""
    budget_looks: int = 32
    """How often to look at memory while a window fills, or while the free part of the budget does."""
    heap_kept_bytes: int = 256 << 20
    """Free bytes at the top of the heap that the process keeps instead of returning them to the system."""

    # Punctuations

    closed_waiting: int = 1024
    """Closed numbers that wait until they are merged into runs of consecutive numbers, at least."""
    promises_kept: int = 65_536
    """Newest promises of an input that an operator keeps until its other inputs make them too."""

    # Measured order of conditions and joins

    filter_rows: int = 256
    """Rows of a batch below which the measured order of conditions is not used."""
    filter_sample: int = 1024
    """Rows on which every condition is measured."""
    filter_gather: int = 4
    """Evaluate a costly condition on gathered rows only where fewer than one row in this many is left."""
    filter_gain: float = 0.9
    """Take a new order of conditions if it costs less than this share of the present one."""
    reorder_every: int = 8192
    """Rows between two looks at the order of joins."""
    reorder_gain: float = 0.95
    """Take a new order of joins if its intermediate results are below this share of the present ones."""
    reorder_payback: int = 2
    """Times that the joins' rows may be replaced before a new order must have paid for the change."""
    reorder_agreement: int = 2
    """Looks in a row that must want the same order of joins before it is taken."""
    reorder_rest: int = 64
    """Most looks to skip after a change of order."""
    reorder_exhaustive: int = 6
    """Relations up to which every order of joins is compared; with more, the search is greedy."""

    # What `why` reports

    silent_seconds: float = 5.0
    """A stream without rows for longer is silent; a heartbeat or a clock without change stands still."""
    stalled_seconds: float = 15.0
    """A run that has not written its status for longer, and for three times its usual time, is stalled."""
    slow_sink_seconds: float = 1.0
    """Sinks that take longer between two statuses, and half of that time or more, are slow."""

    # Messages

    compile_notice_seconds: float = 1.0
    """Seconds of kernel compilation after which a message says what takes so long."""


current = Tuning()
"""The values in force for this process, in all its threads."""


@contextmanager
def using(**changes: float) -> Iterator[Tuning]:
    """Set some fields of `current` for a while."""
    global current  # noqa: PLW0603
    before, current = current, replace(current, **changes)  # type: ignore[arg-type]
    try:
        yield current
    finally:
        current = before
