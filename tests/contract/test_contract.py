"""Every operator class, discovered, obeys the contract that `headrace.operators.contract` states."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace.operators
from headrace.operators.contract import Operator
from headrace.operators.top_n import TopNOperator
from headrace.testing.contracts import Case, Trial, assert_means, assert_same_rows
from tests.contract.cases import CASES
from tests.laws import effort


def operators() -> Iterator[type[Operator]]:
    """Every concrete operator class under `headrace.operators`."""
    for module in pkgutil.walk_packages(headrace.operators.__path__, "headrace.operators."):
        for _, found in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            own = found.__module__ == module.name
            if own and issubclass(found, Operator) and not inspect.isabstract(found):
                yield found


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is only forgotten once it is much is forgotten at once, so that small inputs see it."""
    for name in IMPATIENT:
        monkeypatch.setattr(f"headrace.{name}", 0)


IMPATIENT = (
    "operators.changes._PATIENCE",
    "operators.contenders._PATIENCE",
    "operators.contenders._ROOM",
    "operators.newest_rows._PATIENCE",
    "operators.aggregate._PATIENCE",
    "operators.sessions._PATIENCE",
    "operators.sliding_aggregate._SPARE",
    "operators.joinside._SMALL",
    "operators.joinside._WORTH",
    "operators.coldgroups._WORTH",
    "operators.farends._WORTH",
    "flow.timeline._WORTH",
    "operators.sequence_stage._PATIENCE",
    "operators.sequence_stage._ROOM",
    "operators.sequence_consecutive._PATIENCE",
)
OPERATORS = sorted(operators(), key=lambda o: o.__name__)


def test_every_operator_has_a_contract_case() -> None:
    missing = [o.__name__ for o in OPERATORS if o.__name__ not in CASES]
    assert not missing, f"no contract case in tests/contract/cases.py for {missing}"


@pytest.mark.parametrize("operator", [o for o in OPERATORS if o.__name__ in CASES], ids=lambda o: o.__name__)
@pytest.mark.usefixtures("impatient")
@effort(0.5, "each operator also has its share of the plans of tests/engine/test_equality.py")
@given(st.data(), st.integers(0, 10**6))
def test_an_operator_keeps_the_contract_and_means_what_the_oracle_says(
    operator: type[Operator], data: st.DataObject, seed: int
) -> None:
    entry = CASES[operator.__name__]
    build: Any = entry.build or operator
    case = data.draw(entry.cases)
    trial = Trial(build, case, random.Random(seed).randrange, entry.terms)
    assert type(trial.operator) is operator
    batches = trial.run()
    (assert_same_rows if entry.terms.timeless else assert_means)(batches, case)


@pytest.fixture
def few_contenders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.operators.contenders._MOST", 2)


@pytest.mark.usefixtures("impatient", "few_contenders")
@given(CASES["TopNOperator"].cases, st.integers(0, 10**6))
def test_top_n_changes_over_to_trees_where_contenders_are_many(case: Case, seed: int) -> None:
    trial = Trial(TopNOperator, case, random.Random(seed).randrange)
    assert_means(trial.run(), case)
