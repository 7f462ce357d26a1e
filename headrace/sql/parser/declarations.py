"""`CREATE STREAM`, `CREATE VIEW` and `CREATE TABLE … FROM 'file'`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from headrace.sql.parser.clauses import Declaration, StreamDeclaration, TableDeclaration, ViewDeclaration
from headrace.sql.parser.windows import WindowParser
from headrace.sql.place import Code, fail, nearest

DECLARATION: Final = "declaration"
"""The key in a CREATE's `meta` for its declaration."""


class DeclarationParser(WindowParser):
    """Parses declarations to frozen data; the CREATE node only carries them."""

    def _parse_create(self) -> exp.Create | exp.Command:
        replace = self._match_pair(TokenType.OR, TokenType.REPLACE)
        self._match(TokenType.TEMPORARY)
        word, token = self._curr.text.upper(), self._curr or self._prev
        read = KINDS.get(word)
        if read is None:
            hint = nearest(word, KINDS, "write CREATE STREAM …, CREATE TABLE … or CREATE VIEW …")
            fail(Code.STATEMENT, f"CREATE cannot be followed by {self._curr.text or 'nothing'}", token, hint)
        self._advance()
        declaration = read(self, replace)
        create = exp.Create(this=declaration.name, kind=word).update_positions(token)
        create.meta[DECLARATION] = declaration
        return create

    def _parse_name(self, of: str) -> exp.Identifier:
        """Parse an identifier; `of` says what it names, for the error."""
        at = self._curr or self._prev
        found = self._parse_id_var(any_token=False)
        if not isinstance(found, exp.Identifier) or not found.name:
            fail(Code.SYNTAX, f"expected the name of {of}", at)
        return found

    def _expect(self, token: TokenType, sign: str) -> None:
        """Consume a token or raise an error."""
        if not self._match(token):
            hint = "write CREATE VIEW name AS SELECT …" if self._curr.token_type == TokenType.ALIAS else ""
            fail(Code.SYNTAX, f"expected {sign}", self._curr or self._prev, hint)

    def _parse_stream_declaration(self, replace: bool) -> StreamDeclaration:
        name = self._parse_name("a stream")
        self._expect(TokenType.L_PAREN, "( and the columns")
        columns = self._parse_declared_columns()
        time = self._parse_name("the time column") if self._match_text_seq("TIME") else None
        return StreamDeclaration(name, columns, time, replace)

    def _parse_declared_columns(self) -> tuple[tuple[exp.Identifier, exp.DataType], ...]:
        columns = [self._parse_declared_column()]
        while self._match(TokenType.COMMA):
            columns.append(self._parse_declared_column())
        self._expect(TokenType.R_PAREN, ")")
        return tuple(columns)

    def _parse_declared_column(self) -> tuple[exp.Identifier, exp.DataType]:
        name = self._parse_name("a column")
        at = self._curr or self._prev
        of = self._parse_types(allow_identifiers=False)
        if not isinstance(of, exp.DataType):
            fail(
                Code.UNKNOWN_TYPE,
                f"{at.text!r} is not a type",
                at,
                "types: BIGINT, DOUBLE, STRING, TIMESTAMP, …",
            )
        return name, of.update_positions(at)

    def _parse_view_declaration(self, replace: bool) -> ViewDeclaration:
        name = self._parse_name("a view")
        columns: list[exp.Identifier] = []
        if self._match(TokenType.L_PAREN):
            columns.append(self._parse_name("a column"))
            while self._match(TokenType.COMMA):
                columns.append(self._parse_name("a column"))
            self._expect(TokenType.R_PAREN, ")")
        self._expect(TokenType.ALIAS, "AS and a query")
        return ViewDeclaration(name, tuple(columns), self._parse_query(), replace)

    def _parse_query(self) -> exp.Expr:
        """A whole query of any kind."""
        at: Token = self._curr or self._prev
        found = self._parse_query_modifiers(self._parse_set_operations(self._parse_select(nested=True)))
        if found is None:
            fail(Code.STATEMENT, "expected a query", at, "write SELECT …, or CREATE STREAM | TABLE | VIEW …")
        return found

    def _parse_table_declaration(self, replace: bool) -> TableDeclaration:
        name = self._parse_name("a table")
        columns = self._parse_declared_columns() if self._match(TokenType.L_PAREN) else ()
        self._expect(TokenType.FROM, "FROM and the name of a file")
        file = self._curr
        if not self._match(TokenType.STRING):
            fail(
                Code.SYNTAX,
                "expected the name of a file in quotes",
                file or self._prev,
                "write FROM 'items.csv'",
            )
        path = exp.Literal.string(file.text).update_positions(file)
        return TableDeclaration(name, columns, path, replace)


KINDS: Final[dict[str, Callable[[DeclarationParser, bool], Declaration]]] = {
    "STREAM": DeclarationParser._parse_stream_declaration,
    "VIEW": DeclarationParser._parse_view_declaration,
    "TABLE": DeclarationParser._parse_table_declaration,
}
