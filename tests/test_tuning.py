"""`tuning.using` sets fields for a while and nothing else."""

from __future__ import annotations

import dataclasses

import pytest

from headrace import tuning


def test_fields_are_set_for_a_while_and_the_rest_stays() -> None:
    before = tuning.current
    with tuning.using(batch_rows=7):
        with tuning.using(merge_run=3) as inner:
            assert tuning.current is inner
            assert inner == dataclasses.replace(before, batch_rows=7, merge_run=3)
        assert tuning.current == dataclasses.replace(before, batch_rows=7)
    assert tuning.current is before


def test_what_was_in_force_returns_after_an_error() -> None:
    before = tuning.current
    with pytest.raises(ZeroDivisionError), tuning.using(batch_rows=7):
        _ = 1 // 0
    assert tuning.current is before


def test_a_field_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(TypeError, match="batch_row"), tuning.using(batch_row=7):
        pass
    assert tuning.current == tuning.Tuning()
