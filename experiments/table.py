"""The experiments, in the order in which they are shown. A new one is a file and a name here."""

from __future__ import annotations

from experiments import (
    bound_costs,
    chain,
    deadlines,
    delayed,
    estimation,
    fig7,
    fig8,
    fig14,
    fig15,
    fig16,
    grouping,
    idle,
    levels,
    memory_burst,
    memory_granularity,
    memory_shedding,
    on_spark,
    order,
    patterns,
    per_key,
    probing,
    punctuation,
    reconfiguration,
    strategies,
    ticks,
)
from experiments.result import Experiment

FILES = (
    fig7,
    idle,
    fig8,
    fig14,
    fig15,
    fig16,
    strategies,
    patterns,
    reconfiguration,
    estimation,
    punctuation,
    delayed,
    ticks,
    grouping,
    levels,
    order,
    chain,
    memory_burst,
    memory_shedding,
    memory_granularity,
    probing,
    bound_costs,
    per_key,
    deadlines,
    on_spark,
)

EXPERIMENTS: dict[str, Experiment] = {file.EXPERIMENT.name: file.EXPERIMENT for file in FILES}
