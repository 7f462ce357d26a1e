"""What is promised of streams, as data."""

from __future__ import annotations

from headrace.engine.inputs import Inputs
from headrace.time.bounds import Bounds
from headrace.time.ets import DisorderPromise, TimerPromise
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.skew import SkewMatrix


def test_arrivals_prove_something_unless_the_promise_in_force_is_the_clocks() -> None:
    """Bounds speak for the streams they name: a timer promised beside them is not in force."""
    skew = SkewMatrix.of(["both"], {("both", "both"): [(0, 3)]})
    promises = {"both": TimerPromise(5), "timer": TimerPromise(5), "disorder": DisorderPromise(2)}
    inputs = Inputs(HeartbeatGenerator(Bounds.of(skew, timeout=9)), promises)
    learns = {name: inputs.learns(name) for name in (*promises, "unknown")}
    assert learns == {"both": True, "timer": False, "disorder": True, "unknown": True}
    assert inputs.promise_of("both") is None
