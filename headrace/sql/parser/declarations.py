"""`CREATE STREAM`, `CREATE VIEW`, and `CREATE TABLE` from a file or from a stream of changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from headrace.sql.parser.aggregates import AggregateParser
from headrace.sql.parser.clauses import (
    ChangingTableDeclaration,
    Declaration,
    FormatClause,
    StreamDeclaration,
    TableDeclaration,
    ViewDeclaration,
)
from headrace.sql.parser.names import Columns, Names
from headrace.sql.place import Code, fail, nearest

DECLARATION: Final = "declaration"
"""The key in a CREATE's `meta` for its declaration."""


class DeclarationParser(AggregateParser):
    """Parses declarations to frozen data; the CREATE node only carries them."""

    def _parse_create(self) -> exp.Create | exp.Command:
        replace = self._match_pair(TokenType.OR, TokenType.REPLACE)
        self._match(TokenType.TEMPORARY)
        word, token = self._curr.text.upper(), self._curr or self._prev
        read = KINDS.get(word)
        if read is None:
            hint = nearest(
                word, KINDS, "write CREATE STREAM …, CREATE TABLE …, CREATE VIEW … or CREATE AGGREGATE …"
            )
            fail(Code.STATEMENT, f"CREATE cannot be followed by {self._curr.text or 'nothing'}", token, hint)
        self._advance()
        declaration = read(self, replace)
        create = exp.Create(this=declaration.name, kind=word).update_positions(token)
        create.meta[DECLARATION] = declaration
        return create

    def _parse_stream_declaration(self, replace: bool) -> StreamDeclaration:
        name = self._parse_name("a stream")
        hint = f"write CREATE STREAM {name.name} (item STRING, at TIMESTAMP) TIME at"
        self._expect(TokenType.L_PAREN, "( and the columns", hint)
        columns = self._parse_declared_columns()
        time = self._parse_name("the time column") if self._match_text_seq("TIME") else None
        return StreamDeclaration(name, columns, time, replace)

    def _parse_declared_columns(self) -> Columns:
        columns = self._parse_columns()
        if self._match(TokenType.PRIMARY_KEY, advance=False):
            hint = "remove it, and make a table of the stream: CREATE TABLE t PRIMARY KEY (k) FROM s"
            fail(Code.SYNTAX, "a stream has no PRIMARY KEY", self._curr, hint)
        self._expect(TokenType.R_PAREN, ")")
        return columns

    def _parse_view_declaration(self, replace: bool) -> ViewDeclaration:
        name = self._parse_name("a view")
        columns = self._parse_names("a column") if self._match(TokenType.L_PAREN) else ()
        self._expect(TokenType.ALIAS, "AS and a query")
        return ViewDeclaration(name, columns, self._parse_query(), replace)

    def _parse_table_declaration(self, replace: bool) -> TableDeclaration | ChangingTableDeclaration:
        name = self._parse_name("a table")
        columns, keys = self._parse_table_columns() if self._match(TokenType.L_PAREN) else ((), ())
        keys += self._parse_key_columns()
        self._expect(TokenType.FROM, "FROM and the name of a file or stream")
        file = self._curr
        if not self._match(TokenType.STRING):
            return self._parse_changing_table(name, columns, keys, replace)
        if keys:
            hint = "remove PRIMARY KEY: the rows of a file do not change"
            fail(Code.TABLE_CHANGES, "a table from a file takes no PRIMARY KEY", keys[0], hint)
        path = exp.Literal.string(file.text).update_positions(file)
        return TableDeclaration(name, columns, path, replace)

    def _parse_table_columns(self) -> tuple[Columns, Names]:
        """Columns with their types, and the primary key: of a column, or as an entry of its own."""
        columns: Columns = ()
        keys: Names = ()
        while True:
            own = self._parse_key_columns()
            if not own:
                columns += (self._parse_declared_column(),)
                own = columns[-1][:1] if self._match(TokenType.PRIMARY_KEY) else ()
                self._match_text_seq("NOT", "ENFORCED")
            keys += own
            if not self._match(TokenType.COMMA):
                self._expect(TokenType.R_PAREN, ")")
                return columns, keys

    def _parse_key_columns(self) -> Names:
        """`PRIMARY KEY (k, …)`, also with Flink's NOT ENFORCED; empty if there is none."""
        if not self._match(TokenType.PRIMARY_KEY):
            return ()
        self._expect(TokenType.L_PAREN, "( and the columns of the key")
        names = self._parse_names("a column of the key")
        self._match_text_seq("NOT", "ENFORCED")
        return names

    def _parse_changing_table(
        self, name: exp.Identifier, columns: Columns, keys: Names, replace: bool
    ) -> ChangingTableDeclaration:
        """The stream of a table that changes, and how its rows change the table."""
        at = self._curr or self._prev
        if self._match(TokenType.L_PAREN):
            stream: exp.Expr = self._parse_query()
            self._expect(TokenType.R_PAREN, ")")
        elif not self._curr:
            hint = "write FROM 'items.csv', or PRIMARY KEY (k) FROM changes"
            fail(Code.SYNTAX, "expected the name of a file in quotes, or of a stream", at, hint)
        else:
            stream = exp.Table(this=self._parse_name("a stream")).update_positions(at)
        if not keys:
            keys = self._parse_key_columns()
        clauses: dict[str, Any] = {}
        while (word := self._word()) in CHANGES:
            if word in clauses:
                fail(Code.SYNTAX, f"{word} is written twice", self._curr)
            self._advance()
            clauses[word] = CHANGES[word](self)
        form, delete, ignore = (clauses.get(word) for word in CHANGES)
        return ChangingTableDeclaration(name, columns, keys, stream, form, delete, ignore, replace)

    def _parse_format(self) -> FormatClause:
        name = self._parse_name("a format")
        if not self._match(TokenType.L_PAREN):
            return FormatClause(name, None)
        operation = self._parse_name("the column with the operation")
        self._expect(TokenType.R_PAREN, ")")
        return FormatClause(name, operation)

    def _parse_when(self) -> exp.Expr:
        """`WHEN condition`."""
        word = self._prev.text.upper()
        if not self._match_text_seq("WHEN"):
            fail(Code.SYNTAX, f"expected WHEN after {word}", self._curr or self._prev, f"write {word} WHEN …")
        at = self._curr or self._prev
        found = self._parse_disjunction()
        if found is None:
            fail(Code.SYNTAX, f"{word} WHEN needs a condition", at)
        return found


CHANGES: Final[dict[str, Callable[[DeclarationParser], Any]]] = {
    "FORMAT": DeclarationParser._parse_format,
    "DELETE": DeclarationParser._parse_when,
    "IGNORE": DeclarationParser._parse_when,
}
"""The clauses after the stream of a table, in the order of the fields of its declaration."""

KINDS: Final[dict[str, Callable[[DeclarationParser, bool], Declaration]]] = {
    "STREAM": DeclarationParser._parse_stream_declaration,
    "VIEW": DeclarationParser._parse_view_declaration,
    "TABLE": DeclarationParser._parse_table_declaration,
    "AGGREGATE": DeclarationParser._parse_aggregate_declaration,
}
