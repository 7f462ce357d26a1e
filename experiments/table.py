"""The experiments, in the order in which they are shown. A new one is a file and a line here."""

from __future__ import annotations

from experiments import fig7
from experiments.result import Experiment

EXPERIMENTS: dict[str, Experiment] = {e.name: e for e in (fig7.EXPERIMENT,)}
