"""A pytest plugin: each law is tried on fixed examples, the same in every run, and on fresh ones.

A law is a test with `@given`. The fixed examples follow from the test alone, so a change that breaks them is
seen everywhere. The fresh ones follow from a seed that is printed and can be given back: `HEADRACE_SEED=123
make test`, or `--hypothesis-seed=123`. No other variable changes what is tried. A clean checkout has the seed
of its commit, so that everyone who tests a commit tests the same; with changes, each run has a new one.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from hashlib import sha256
from inspect import signature
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, is_hypothesis_test, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.internal.constants_ast import Constants

FIXED = 25
FRESH = int(os.environ.get("HEADRACE_EXAMPLES", "25"))
"""HEADRACE_EXAMPLES=2000 looks harder: at more fresh examples."""

SEED = pytest.StashKey[int]()

# Where `CI` is set, hypothesis starts with another profile: this one has none of it. Deadlines and `too_slow`
# measure the machine, which is shared and noisy.
settings.register_profile(
    "headrace",
    settings.get_profile("default"),
    deadline=None,
    max_examples=FIXED + FRESH,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("headrace")

# Hypothesis also tries constants that it finds in the modules which are loaded by then. A law would have
# other examples when its file is run alone, and a seed would not bring back what was found.
HypothesisProvider._local_constants = Constants()


BY_CHANCE = [HealthCheck.filter_too_much, HealthCheck.data_too_large]
"""Whether many examples are refused is judged on the fixed ones, with the same verdict in every run. On fresh
ones a sound law would fail now and then: one that a third of the examples suit, in one run of 700."""


def effort(times: float, why: str) -> settings:
    """`@effort(3, "cheap")`: three times the usual examples, and the reason."""
    assert why
    return settings(max_examples=max(2, round(times * settings.default.max_examples)))


def searching(most: int) -> settings:
    """For `find`, where a test asks what a generator reaches: the same search in every run."""
    every = list(HealthCheck)
    return settings(max_examples=most, database=None, derandomize=True, suppress_health_check=every)


def pytest_configure(config: pytest.Config) -> None:
    given = config.getoption("--hypothesis-seed") or os.environ.get("HEADRACE_SEED")
    given = getattr(config, "workerinput", {}).get("seed", given)
    try:
        config.stash[SEED] = seed_of_checkout(config.rootpath) if given is None else int(given)
    except ValueError:
        raise pytest.UsageError(f"the seed of the examples is not an integer: {given!r}") from None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """The processes of pytest-xdist use the seed of the one that starts them."""
    node.workerinput["seed"] = node.config.stash[SEED]


def seed_of_checkout(root: Path) -> int:
    """The seed of the commit if nothing is changed, else a new one.

    Only the package and the tests count: a commit of documents or measurements draws no other examples.
    """
    changes, trees = (
        _git(root, "status", "--porcelain"),
        _git(root, "rev-parse", "HEAD:headrace", "HEAD:tests"),
    )
    if changes or not trees:
        return SystemRandom().getrandbits(32)
    return int(sha256(trees.encode()).hexdigest()[:8], 16)


def _git(root: Path, *command: str) -> str | None:
    """What git answers in a folder; None where there is no repository or no git."""
    try:
        made = subprocess.run(["git", "-C", root, *command], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return made.stdout.strip()


@pytest.fixture(scope="session")
def run_seed(pytestconfig: pytest.Config) -> int:
    """The seed of this run, for a test that draws examples in another way."""
    return pytestconfig.stash[SEED]


def pytest_report_header(config: pytest.Config) -> str:
    return f"laws: {FIXED} fixed and {FRESH} fresh examples each; the fresh ones again: {_again(config)}"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if any(terminalreporter.stats.get(outcome) for outcome in ("failed", "error")):
        terminalreporter.section("Laws")
        terminalreporter.write_line(f"the fresh examples of this run again: {_again(config)}")


def _again(config: pytest.Config) -> str:
    return f"HEADRACE_SEED={config.stash[SEED]}"


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """The fixed examples, then the test as pytest runs it, on the fresh ones."""
    __tracebackhide__ = True
    test = pyfuncitem.obj
    if not is_hypothesis_test(test):
        return (yield)
    law = getattr(test, "__func__", test)
    asked = law._hypothesis_internal_use_settings
    count = max(1, round(asked.max_examples * FIXED / (FIXED + FRESH)))
    fixed = settings(asked, max_examples=count, derandomize=True)
    rest = tuple(phase for phase in asked.phases if phase is not Phase.explicit)
    lenient = [*asked.suppress_health_check, *BY_CHANCE]
    some = max(1, asked.max_examples - count)
    fresh = settings(asked, max_examples=some, phases=rest, suppress_health_check=lenient)
    with _tried(pyfuncitem, law, fixed, None, "on a fixed example: the same in every run"):
        test(**{name: pyfuncitem.funcargs[name] for name in signature(test).parameters})
    seed = f"{pyfuncitem.config.stash[SEED]} {pyfuncitem.nodeid}"
    with _tried(pyfuncitem, law, fresh, seed, f"on a fresh example: again with {_again(pyfuncitem.config)}"):
        return (yield)


@contextmanager
def _tried(item: pytest.Function, law: Any, how: settings, seed: str | None, where: str) -> Iterator[None]:
    """The law with these settings and this seed; a failure is reported with `where` it was."""
    before = law._hypothesis_internal_use_settings, law._hypothesis_internal_use_seed
    law._hypothesis_internal_use_settings, law._hypothesis_internal_use_seed = how, seed
    try:
        yield
    except BaseException:
        item.add_report_section("call", "law", where)
        raise
    finally:
        law._hypothesis_internal_use_settings, law._hypothesis_internal_use_seed = before
