"""Sources give each row once, from wherever they are told to go on."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.ahead import ReadAhead
from headrace.connectors.contract import Bad, Source
from headrace.connectors.files import FilesSource
from headrace.connectors.finished import FinishedFiles
from headrace.connectors.formats import Format
from headrace.connectors.live import Assembler, LiveLines, StandardInput
from headrace.connectors.nexmark import STREAMS, NexmarkGenerator
from headrace.connectors.nexmark.source import NexmarkSource
from headrace.connectors.poisson import PoissonSource
from headrace.connectors.tcp import Limits, TcpClient, TcpServer
from headrace.errors import HeadraceError

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
ROWS = [{"k": k, "v": f"v{k}"} for k in range(57)]


def write(path: Path, name: str, rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    if name == "json":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif name == "csv":
        path.write_text("k,v\n" + "".join(f"{row['k']},{row['v']}\n" for row in rows))
    elif name == "parquet":
        pq.write_table(table, path, row_group_size=7)
    elif name == "arrow":
        with pa.ipc.new_file(path, SCHEMA) as file:
            file.write_table(table, max_chunksize=9)
    else:
        with pa.ipc.new_stream(path, SCHEMA) as stream:
            stream.write_table(table, max_chunksize=9)


def directory(root: Path, name: str) -> FilesSource:
    for part, begin in enumerate(range(0, len(ROWS), 20)):
        path = root / f"{part}.dat"
        if not path.exists():
            write(path, name, ROWS[begin : begin + 20])
    how = Format("arrow" if name == "stream" else name, block=40, rows=4)
    return FilesSource(str(root), SCHEMA, how, finished=FinishedFiles(root / ".log"))


def ahead(root: Path, name: str) -> ReadAhead:
    return ReadAhead(directory(root, name))


def blocks(source: Source) -> Iterator[list[dict[str, Any]]]:
    while (block := source.read()) is not None:
        assert not block.bad
        yield block.data.to_pylist()


@pytest.mark.parametrize("make", [directory, ahead])
@pytest.mark.parametrize("name", ["json", "csv", "parquet", "arrow", "stream"])
def test_a_source_goes_on_from_any_position(
    name: str, make: Callable[[Path, str], Source], tmp_path: Path
) -> None:
    source, positions, count = make(tmp_path, name), [], 0
    positions.append((source.position(), 0))
    for rows in blocks(source):
        count += len(rows)
        positions.append((json.loads(json.dumps(source.position())), count))
    assert source.ended
    assert count == len(ROWS)
    assert len(positions) > 10
    inner = source if isinstance(source, FilesSource) else source._source  # type: ignore[attr-defined]
    inner.finished.secure()
    for position, done in positions:
        other = make(tmp_path, name)
        other.read()
        other.seek(position)
        assert [row for rows in blocks(other) for row in rows] == ROWS[done:]
        other.close()
    source.close()


def test_a_growing_directory_gives_whole_lines_as_they_come(tmp_path: Path) -> None:
    source = FilesSource(str(tmp_path), SCHEMA, Format("json"), follow=True)
    assert source.read() is None
    (tmp_path / "b").write_text('{"k": 1, "v": "x"}\n{"k": 2, ')
    assert [row["k"] for rows in blocks(source) for row in rows] == [1]
    with (tmp_path / "b").open("a") as file:
        file.write('"v": "y"}\n')
    (tmp_path / "a").write_text('{"k": 3, "v": "z"}\n')
    assert sorted(row["k"] for rows in blocks(source) for row in rows) == [2, 3]
    other = FilesSource(str(tmp_path), SCHEMA, Format("json"), follow=True)
    other.seek(source.position())
    assert other.read() is None
    (tmp_path / "c").write_text('{"k": 4, "v": "w"}\n')
    assert [row["k"] for rows in blocks(other) for row in rows] == [4]
    assert not other.ended
    source.close()
    other.close()


def test_a_line_that_never_ends_is_skipped_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "s"
    source = FilesSource(str(path), SCHEMA, Format("json", longest=100, block=16), follow=True)
    path.write_text("x" * 150)
    assert source.read() is None
    with path.open("a") as file:
        file.write("x" * 150 + '\n{"k": 1, "v": "a"}\n')
    (found,) = [block for block in iter(source.read, None) if block.bad]
    assert found.bad[0].code == "HR-R104"
    assert "300 bytes" in found.bad[0].reason
    (mark,) = source.position()["files"].values()
    assert mark[0] == path.stat().st_size
    source.close()


def test_a_path_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match="HR-C001"):
        FilesSource(str(tmp_path / "none.json"), SCHEMA, Format("json")).read()


def test_poisson_makes_the_same_rows_from_any_position() -> None:
    def make() -> PoissonSource:
        return PoissonSource(SCHEMA, 100.0, 10_000, seed=5)

    source, rows, positions = make(), [], []
    while (block := source.read()) is not None:
        positions.append((source.position(), len(rows) + len(block)))
        rows += block.data.to_pylist()
    assert len(rows) == 10_000
    for position, done in positions:
        other = make()
        other.seek(position)
        assert [r for b in iter(other.read, None) for r in b.data.to_pylist()] == rows[done:]


def received(source: LiveLines, wanted: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for _ in range(10_000_000):  # a busy machine may take a while to deliver
        block = source.read()
        rows += block.data.to_pylist() if block else []
        if len(rows) >= wanted and (source.ended or not source.bounded):
            break
    return rows


def test_lines_over_tcp_from_a_server_until_it_hangs_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = LiveLines(TcpClient("127.0.0.1", server.getsockname()[1]), SCHEMA, Format("json"))
        connection, _ = server.accept()
        with connection:
            assert source.read() is None
            connection.sendall(b'{"k": 1, "v": "a"}\n{"k": 2,')
            connection.sendall(b' "v": "b"}\nbad\n{"k": 3, "v": "c"}\n')
        rows = received(source, 3)
        source.close()
    assert [row["k"] for row in rows] == [1, 2, 3]
    assert source.ended


def test_lines_over_tcp_from_clients_one_after_the_other() -> None:
    wire = TcpServer("127.0.0.1", 0)
    source = LiveLines(wire, SCHEMA, Format("csv", header=False), bounded=False)
    for k in range(3):
        with socket.create_connection(("127.0.0.1", wire.port)) as client:
            client.sendall(b"%d,x\n" % k)
        while not (block := source.read()) or not len(block):
            pass
        assert block.data.to_pylist() == [{"k": k, "v": "x"}]
    source.close()
    assert not source.ended


CUT_OFF = {"csv": b"1,a\n2,b\n3,c", "json": b'{"k": 1, "v": "a"}\n{"k": 2, "v": "b"}\n{"k": 3, "v": "c"}'}
AFTER = {"csv": b"4,d\n", "json": b'{"k": 4, "v": "d"}\n'}


def all_of(source: LiveLines, wanted: int) -> tuple[list[int], list[Bad]]:
    """The keys of the rows, and the bad lines, once so many came."""
    rows: list[int] = []
    bad: list[Bad] = []
    for _ in range(10_000_000):  # a busy machine may take a while to deliver
        block = source.read()
        rows += block.data.column(0).to_pylist() if block else []
        bad += block.bad if block else ()
        if len(rows) + len(bad) >= wanted:
            return rows, bad
    raise AssertionError((rows, bad))


@pytest.mark.parametrize("name", CUT_OFF)
@pytest.mark.parametrize("listen", [True, False])
def test_a_line_cut_by_a_disconnect_is_rejected_and_no_row(name: str, listen: bool) -> None:
    """Defect 13: 7,100000 cut after 100 was the row (7, 100)."""
    how = Format(name, header=False)
    if listen:
        wire = TcpServer("127.0.0.1", 0)
        source = LiveLines(wire, SCHEMA, how, bounded=False)
        for text in (CUT_OFF[name], AFTER[name]):
            with socket.create_connection(("127.0.0.1", wire.port)) as client:
                client.sendall(text)
        rows, bad = all_of(source, 4)
        assert rows == [1, 2, 4]
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            source = LiveLines(TcpClient("127.0.0.1", server.getsockname()[1]), SCHEMA, how)
            connection, _ = server.accept()
            with connection:
                connection.sendall(CUT_OFF[name])
            rows, bad = all_of(source, 3)
        assert rows == [1, 2]
        assert source.read() is None
        assert source.ended
    source.close()
    (cut,) = bad
    assert (cut.code, cut.raw) == ("HR-R109", CUT_OFF[name].decode().splitlines()[-1])


def test_a_header_cut_by_a_disconnect_names_no_columns() -> None:
    wire = TcpServer("127.0.0.1", 0)
    source = LiveLines(wire, SCHEMA, Format("csv"), bounded=False)
    for text in (b"k,", b"k,v\n1,a\n"):
        with socket.create_connection(("127.0.0.1", wire.port)) as client:
            client.sendall(text)
    rows, bad = all_of(source, 2)
    source.close()
    assert (rows, [each.raw for each in bad]) == ([1], ["k,"])


def sent(wire: TcpServer, *texts: bytes) -> list[socket.socket]:
    """Clients that stay connected, each with what it said."""
    clients = [socket.create_connection(("127.0.0.1", wire.port)) for _ in texts]
    for client, text in zip(clients, texts, strict=True):
        client.sendall(text)
    return clients


def test_a_client_that_says_nothing_holds_nobody_up() -> None:
    """Defect 9: one client was served at a time, and it was waited for without end."""
    wire = TcpServer("127.0.0.1", 0)
    source = LiveLines(wire, SCHEMA, Format("csv", header=False), bounded=False)
    clients = sent(wire, b"", b"1,", b"2,a\n", b"3,b\n4,")
    assert received(source, 2) == [{"k": 2, "v": "a"}, {"k": 3, "v": "b"}]
    clients[1].sendall(b"x\n")
    assert received(source, 1) == [{"k": 1, "v": "x"}]
    clients[3].sendall(b"y\n")
    assert received(source, 1) == [{"k": 4, "v": "y"}]
    for client in clients:
        client.close()
    source.close()


@given(
    texts=st.lists(st.lists(st.integers(0, 99), max_size=6), min_size=1, max_size=4),
    cuts=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=40),
)
def test_lines_of_several_clients_are_never_mixed(
    texts: list[list[int]], cuts: list[tuple[int, int]]
) -> None:
    """Whatever the pieces in which they come, and by turns."""
    wire = TcpServer("127.0.0.1", 0)
    source = LiveLines(wire, SCHEMA, Format("csv", header=False), bounded=False)
    left = [b"".join(b"%d,%d\n" % (n, k) for k in text) for n, text in enumerate(texts)]
    clients = sent(wire, *(b"" for _ in left))
    rows: list[dict[str, Any]] = []
    for who, size in [*cuts, *((n, 1000) for n in range(len(left)))]:
        n = who % len(left)
        clients[n].sendall(left[n][:size])
        left[n] = left[n][size:]
        block = source.read()
        rows += block.data.to_pylist() if block else []
        assert not block or not block.bad
    rows += received(source, sum(map(len, texts)) - len(rows))
    for client in clients:
        client.close()
    source.close()
    for n, text in enumerate(texts):
        assert [row["v"] for row in rows if row["k"] == n] == [str(k) for k in text]


def test_a_client_that_is_silent_for_long_gives_way_to_one_that_waits() -> None:
    now = [0.0]
    wire = TcpServer("127.0.0.1", 0, Limits(clients=2, idle=60), lambda: now[0])
    source = LiveLines(wire, SCHEMA, Format("csv", header=False), bounded=False)
    clients = sent(wire, b"1,", b"2,a\n")
    assert received(source, 1) == [{"k": 2, "v": "a"}]
    clients += sent(wire, b"3,c\n")
    now[0] = 59
    clients[1].sendall(b"2,b\n")
    assert received(source, 1) == [{"k": 2, "v": "b"}]
    assert wire.clients == 2
    now[0] = 61
    rows, bad = all_of(source, 2)
    assert rows == [3]
    assert [(each.code, each.raw) for each in bad] == [("HR-R109", "1,")]
    for client in clients:
        client.close()
    source.close()


def test_a_line_of_a_client_that_is_too_long_is_rejected_with_its_beginning() -> None:
    wire = TcpServer("127.0.0.1", 0, Limits(line=100_000))
    source = LiveLines(wire, SCHEMA, Format("csv", header=False, longest=100_000), bounded=False)
    clients = sent(wire, b"1," + b"x" * 300_000 + b"\n2,b\n", b"3,c\n")
    rows, (bad,) = all_of(source, 3)
    assert sorted(rows) == [2, 3]
    assert (bad.code, bad.reason) == ("HR-R104", "the line has 300002 bytes, which is too long")
    assert bad.raw.startswith("1,xxx")
    assert len(bad.raw) < 1100
    for client in clients:
        client.close()
    source.close()


def test_unfinished_lines_of_all_clients_together_are_bounded() -> None:
    wire = TcpServer("127.0.0.1", 0, Limits(pending=150_000))
    source = LiveLines(wire, SCHEMA, Format("csv", header=False), bounded=False)
    clients = sent(wire, *(b"%d," % n + b"x" * 60_000 for n in range(4)))
    for _ in range(1000):
        assert source.read() is None
    for client in clients:
        client.sendall(b"\n")
    rows, bad = all_of(source, 4)
    assert len(rows) == 2
    assert all(each.code == "HR-R104" and "all clients" in each.reason for each in bad)
    for client in clients:
        client.close()
    source.close()


def test_a_short_limit_counts_for_lines_that_come_in_one_piece() -> None:
    wire = TcpServer("127.0.0.1", 0, Limits(line=10))
    source = LiveLines(wire, SCHEMA, Format("csv", header=False, longest=10), bounded=False)
    (client,) = sent(wire, b"1,a\n2," + b"x" * 50 + b"\n3,c\n")
    rows, bad = all_of(source, 3)
    client.close()
    source.close()
    assert rows == [1, 3]
    assert [each.reason for each in bad] == ["the line has 52 bytes, which is too long"]


def test_a_port_that_is_taken_is_an_error_with_a_hint() -> None:
    wire = TcpServer("127.0.0.1", 0)
    with pytest.raises(HeadraceError, match="HR-C005"):
        TcpServer("127.0.0.1", wire.port)
    wire.close()


def test_nobody_listening_is_an_error_with_a_hint() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(HeadraceError, match="HR-C004"):
        TcpClient("127.0.0.1", port)


def test_standard_input_until_its_end() -> None:
    reader, writer = os.pipe()
    source = LiveLines(StandardInput(reader), SCHEMA, Format("csv"))
    assert source.read() is None
    os.write(writer, b"k,v\n1,a\n2,b")
    os.close(writer)
    blocks = list(iter(source.read, None))
    os.close(reader)
    rows = [row for block in blocks for row in block.data.to_pylist()]
    assert rows == [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}]
    assert source.ended


def test_of_a_long_line_on_a_wire_only_the_beginning_is_kept() -> None:
    lines = Assembler(longest=50)
    assert lines.add(b"one\n" + b"y" * 100) == (b"one\n", [])
    for _ in range(1000):
        assert lines.add(b"y" * 100) == (b"", [])
    assert len(lines._rest) < 5000
    whole, (bad,) = lines.add(b"y\ntwo\nthr")
    assert whole == b"two\n"
    assert (bad.code, bad.reason) == ("HR-R104", "the line has 100101 bytes, which is too long")
    assert lines.finish() == (b"thr", [])


def test_nexmark_gives_the_rows_of_its_generator_from_any_position() -> None:
    schema = STREAMS["bid"].schema

    def make() -> NexmarkSource:
        house = NexmarkGenerator(seed=2, rate=20_000, delayed=0.1)
        return NexmarkSource(house, "bid", schema, 100_000)

    source, rows, arrivals, positions = make(), [], [], []
    while (block := source.read()) is not None:
        assert block.arrival is not None
        positions.append((source.position(), len(rows) + len(block)))
        rows += block.data.column(0).to_pylist()
        arrivals += block.arrival.tolist()
    expected = NexmarkGenerator(seed=2, rate=20_000, delayed=0.1).batches(0, 100_000)["bid"]
    assert sorted(rows) == sorted(expected.data.column(0).to_pylist())
    assert arrivals == sorted(arrivals)
    assert len(positions) > 3
    for position, done in positions:
        other = make()
        other.seek(position)
        assert [r for b in iter(other.read, None) for r in b.data.column(0).to_pylist()] == rows[done:]
