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
from headrace import tuning
from headrace.operators.contract import Operator
from headrace.operators.top_n import TopNOperator
from tests.contract.cases import CASES
from tests.laws import effort
from tests.strategies.contracts import Case, Trial, assert_means, assert_same_rows


def operators() -> Iterator[type[Operator]]:
    """Every concrete operator class under `headrace.operators`."""
    for module in pkgutil.walk_packages(headrace.operators.__path__, "headrace.operators."):
        for _, found in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            own = found.__module__ == module.name
            if own and issubclass(found, Operator) and not inspect.isabstract(found):
                yield found


@pytest.fixture
def impatient() -> Iterator[None]:
    """State is compacted at once, and has no room to spare, so that small inputs see it."""
    with tuning.using(compact_after=0, idle_keys=0, match_room=0, skyband_room=0, spill_file_bytes=0):
        yield


OPERATORS = sorted(operators(), key=lambda o: o.__name__)


def test_an_operator_has_ten_methods_that_its_author_must_know() -> None:
    """Memory is apart, in `headrace.operators.memory`."""
    own = {name for name, found in vars(Operator).items() if callable(found) or isinstance(found, property)}
    assert {name for name in own if not name.startswith("_")} == {
        *("connect", "execute", "more", "yields", "emit"),
        *("needs", "demand", "map_heartbeat", "on_punctuation", "state"),
    }


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
def few_contenders() -> Iterator[None]:
    with tuning.using(skyband_entries=2):
        yield


@pytest.mark.usefixtures("impatient", "few_contenders")
@given(CASES["TopNOperator"].cases, st.integers(0, 10**6))
def test_top_n_changes_over_to_trees_where_contenders_are_many(case: Case, seed: int) -> None:
    trial = Trial(TopNOperator, case, random.Random(seed).randrange)
    assert_means(trial.run(), case)


@pytest.mark.usefixtures("impatient")
@given(CASES["AdaptiveOrderOperator"].cases, st.integers(0, 10**6))
def test_where_rows_wait_may_change_at_any_time(case: Case, seed: int) -> None:
    """The steps are measured again after every other row, and any gain is enough."""
    entry = CASES["AdaptiveOrderOperator"]
    with tuning.using(selectivity_rows=2, order_gain=1.0):
        trial = Trial(entry.build, case, random.Random(seed).randrange, entry.terms)  # type: ignore[arg-type]
        assert_means(trial.run(), case)
