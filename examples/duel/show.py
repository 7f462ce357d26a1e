"""The demonstration part by part, as plain text of at most 80 columns."""

from __future__ import annotations

import statistics
import textwrap
import time
from collections.abc import Iterable

from examples.auction import MINUTE, TITLES, Auction, Pace, open_house
from examples.duel.engines import BEHIND, GUARD, QUERIES, Answer, Duel, Runner, Tick
from headrace.graph.node import Node
from headrace.testing.arrivals import SECOND

WIDTH = 78
ASKED = {
    "log": "Everything that happens, in order of time.",
    "sold": "When an auction closes: what was it sold for?",
    "highest": "The highest bid for each item, minute by minute.",
}


def show(minutes: int) -> Duel:
    """Run the whole demonstration and give back what was measured."""
    began = time.perf_counter()
    auction = open_house(Pace(minutes * MINUTE))
    duel = Duel(auction)
    introduce(auction)
    ask()
    for tick in watch(duel):
        tell(tick, duel)
    compare(duel)
    leftovers(duel.prompt)
    account(duel.prompt)
    table(duel)
    duel.end()
    conclude(duel, time.perf_counter() - began)
    return duel


# ------------------------------------------------------------------------------------ the parts, in order


def introduce(auction: Auction) -> None:
    """Who speaks, and how well."""
    headline(f"HEADRACE: an online auction, {auction.end // MINUTE} minutes of it")
    say("""This runs on the Headrace engine inside one Python process; `make demo` shows it on Spark. The
        clock is simulated: minutes go by in seconds.""")
    title("1. Three streams")
    kinds = {
        "bids": f"busy, and out of order by up to {auction.disorder / SECOND:.1f} s",
        "auctions": "an item is put up for sale, now and then",
        "closings": "an auction closes: nearly silent",
    }
    for name, kind in kinds.items():
        print(f"  {name:<9}{len(auction.streams[name]):>6,} rows   {kind}")
    print()
    say(f"""The house accepts a bid until {BEHIND["bids"] // SECOND} s after it was made; the two other
        streams are never more than {BEHIND["closings"] // SECOND} s behind the clock. A few bids break
        that rule, one comes from a computer whose clock is a day ahead, and one has no time at all.""")


def ask() -> None:
    """The questions, as CQL."""
    title("2. Three questions that stay open")
    for name, text in QUERIES.items():
        print(f"  {name}: {ASKED[name]}\n")
        print(textwrap.indent(textwrap.dedent(text).strip("\n"), "      "), end="\n\n")


def watch(duel: Duel) -> Iterable[Tick]:
    """The run itself."""
    title("3. Time passes")
    say("""Lines are printed as answers come out. "with ETS": when an operator waits for a silent stream, the
        engine asks that stream how far its time has come (an Enabling Time-Stamp; policy `on_demand`). "no
        ETS": the same engine, but auctions and closings are heard only when a row comes (policy `none`).""")
    yield from duel.run()


def tell(tick: Tick, duel: Duel) -> None:
    """What is worth a line at this tick."""
    for way, answers in (("with ETS", tick.prompt), ("no ETS", tick.silent)):
        for sold in answers["sold"]:
            item, price, bids = sold.row
            what = f"SOLD {item} for {price:.2f} after {bids} bids"
            print(f"  {clock(tick.now)}  {what:<38}{way:>8}: {seconds(sold.delay)} after closing")
    if tick.prompt["highest"]:
        minute(tick, duel)


def minute(tick: Tick, duel: Duel) -> None:
    """The minute's highest bids, and how far the log has come on both sides."""
    best = sorted(tick.prompt["highest"], key=lambda answer: -answer.row[1])
    shown = ", ".join(f"{TITLES[answer.row[0]]} {answer.row[1]:.2f}" for answer in best[:3])
    print(f"\n  {clock(tick.now)}  highest bids in a minute: {shown}")
    held = duel.held("log")
    line = f"log: {len(duel.prompt.answers['log']):,} rows out"
    if held:
        line += f"; no ETS: {len(held):,} of them held back, up to {seconds(tick.now - held[0].out)}"
    print(f"           {line}")


def compare(duel: Duel) -> None:
    """The same answers, how much later."""
    title(f"4. How late was each answer? (at {clock(duel.clock.now())}, before the end)")
    head = ("query", "answers out", "delay, median", "delay, worst", "held back")
    print(f"  {head[0]:<18}" + "".join(f"{word:>15}" for word in head[1:]))
    for name in QUERIES:
        for runner, way in ((duel.prompt, "with ETS"), (duel.silent, "no ETS")):
            answers = runner.answers[name]
            held = len(duel.prompt.answers[name]) - len(answers)
            cells = (f"{len(answers):,}", *delays(answers), f"{held:,}")
            print(f"  {name:<9}{way:<9}" + "".join(f"{cell:>15}" for cell in cells))
    print()
    say(f"""The delay is the time from the instant that an answer speaks of to its coming out. About
        {BEHIND["bids"] // SECOND} s is as early as it can be: so long a bid may be on its way. "held back":
        out with ETS, not out without. Asking only for bids, "highest" has no silent stream to wait for.""")


def leftovers(runner: Runner) -> None:
    """Rows that were not processed, each with its reason."""
    title("5. Nothing is dropped in silence")
    print("  Late: came after the engine had answered for their time.")
    for now, late in runner.late:
        for row, made, by in zip(late.rows.to_pylist(), late.times, late.lateness, strict=True):
            what = f"bid of {row['price']:.2f} for the {TITLES[row['item']]} by {row['bidder']}"
            print(f"    {what:<35} made {clock(made)}, came {clock(now)}: {seconds(by)} late")
    print("\n  Rejected: no rows of the stream.")
    for each in runner.rejected:
        assert each.rows is not None
        for row in each.rows.to_pylist():
            print(
                f"    {each.code}  bid of {row['price']:.2f} for the {TITLES[row['item']]} by {row['bidder']}"
            )
            say(each.reason, indent="             ")
    print(f"\n  (Ticks are microseconds: the guard is {GUARD // SECOND} s.)")


def account(runner: Runner) -> None:
    """Rows in = processed + late + rejected."""
    title("6. Every row is accounted for")
    head = ("stream", "rows in", "processed", "late", "rejected")
    print("  " + "{:<9} {:>8} = {:>10} + {:>5} + {:>9}".format(*head))
    for name, s in runner.engine.metrics().sources.items():
        assert s.rows_in == s.rows_processed + s.rows_late + s.rows_rejected, name
        apart = f"{s.rows_late:>5,} + {s.rows_rejected:>9,}"
        print(f"  {name:<9} {s.rows_in:>8,} = {s.rows_processed:>10,} + {apart}")


def table(duel: Duel) -> None:
    """The state table of one query."""
    title("7. Who runs next: the state table of `log`")
    engine = duel.prompt.engine
    print(textwrap.indent(engine.scheduling.table.show(behind(duel, "log")), "  "), end="\n\n")
    say(f"""One line per operator and input: where control may go back to, where on to, and the rule that
        decides (here depth first, with as many rows at a time as wait). All queries share one graph of
        {len(engine.graph.nodes)} operators. With ETS, bids made {ets(duel.prompt, "bids"):,} time-stamps on
        demand, auctions {ets(duel.prompt, "auctions"):,} and closings {ets(duel.prompt, "closings"):,}.""")


def conclude(duel: Duel, took: float) -> None:
    """What a newcomer should take home."""
    title("8. In short")
    answers = {
        name: [[(a.time, a.row) for a in runner.answers[name]] for runner in (duel.prompt, duel.silent)]
        for name in QUERIES
    }
    same = all(left == right for left, right in answers.values())
    sold = [[a.delay for a in runner.answers["sold"]] for runner in (duel.prompt, duel.silent)]
    sources = duel.prompt.engine.metrics().sources.values()
    total, odd = (sum(s.rows_in for s in sources), sum(s.rows_late + s.rows_rejected for s in sources))
    for line in (
        f"The outcome of an auction was known {seconds(max(sold[0]))} after it closed at the latest. Without"
        f" ETS it took up to {seconds(max(sold[1]))}: until the next auction closed, or the house did.",
        "Then all streams were ended, and both engines had given out "
        + ("exactly the same answers." if same else "DIFFERENT answers: that is a bug, please report it."),
        f"{total:,} rows came in, out of order; the answers came out in order; {odd} rows were set apart,"
        " each with its reason.",
        f"{duel.auction.end // MINUTE} minutes of two engines took {took:.1f} s here.",
    ):
        say(line, indent="  - ", after="    ")
    print("\n  Next: README.md, docs/concepts/, and examples/ for how this was done.\n")


# ------------------------------------------------------------------------------------------ small helpers


def behind(duel: Duel, name: str) -> list[Node]:
    """The operators of one query, first to last."""
    graph = duel.prompt.engine.graph
    last = next(n for n in graph.nodes if n.operator.output is graph.sinks[name].arc)
    found, queue = [], [last]
    while queue:
        node = queue.pop()
        found.append(node)
        queue += [before for before in node.predecessors if isinstance(before, Node)]
    return [node for node in graph.nodes if node in found]


def ets(runner: Runner, stream: str) -> int:
    """Enabling Time-Stamps that a stream has made."""
    return runner.engine.metrics().sources[stream].ets_made


def delays(answers: list[Answer]) -> tuple[str, str]:
    """Median and worst delay."""
    found = [a.delay for a in answers]
    return (seconds(statistics.median(found)), seconds(max(found))) if found else ("-", "-")


def clock(instant: int) -> str:
    """An instant as minutes and seconds since the doors opened."""
    return f"{instant // MINUTE:02d}:{instant % MINUTE / SECOND:04.1f}"


def seconds(ticks: float) -> str:
    """A length of time."""
    return f"{ticks / SECOND:.1f} s"


def say(text: str, indent: str = "  ", after: str | None = None) -> None:
    """A paragraph."""
    words = " ".join(text.split())
    print(
        textwrap.fill(
            words, WIDTH, initial_indent=indent, subsequent_indent=indent if after is None else after
        )
    )


def title(text: str) -> None:
    """The heading of a part."""
    print(f"\n{text}\n{'-' * len(text)}\n")


def headline(text: str) -> None:
    """The heading of it all."""
    print(f"\n{text}\n{'=' * len(text)}\n")
