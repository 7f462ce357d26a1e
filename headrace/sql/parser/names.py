"""What all declarations are made of: names, lists of names, columns with types, and queries."""

from __future__ import annotations

from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from headrace.sql.parser.windows import WindowParser
from headrace.sql.place import Code, fail

Columns = tuple[tuple[exp.Identifier, exp.DataType], ...]
Names = tuple[exp.Identifier, ...]
QUERY: Final = "write SELECT …, or CREATE STREAM | TABLE | VIEW …"
STATEMENTS: Final = {
    "INSERT": "write SELECT … FROM …; where answers go is set in the pipeline file",
    "MERGE": "a table follows a stream of changes: CREATE TABLE t PRIMARY KEY (k) FROM s DELETE WHEN gone",
}
"""What to write instead of statements of other systems; QUERY for any other."""


class NameParser(WindowParser):
    """Parses the parts of declarations."""

    def _parse_name(self, of: str) -> exp.Identifier:
        """Parse an identifier; `of` says what it names, for the error."""
        at = self._curr or self._prev
        found = self._parse_id_var(any_token=False)
        if not isinstance(found, exp.Identifier) or not found.name:
            fail(Code.SYNTAX, f"expected the name of {of}", at)
        return found

    def _expect(self, token: TokenType, sign: str, hint: str = "") -> None:
        """Consume a token or raise an error."""
        if not self._match(token):
            is_view = self._curr.token_type == TokenType.ALIAS
            hint = "write CREATE VIEW name AS SELECT …" if is_view else hint
            fail(Code.SYNTAX, f"expected {sign}", self._curr or self._prev, hint)

    def _parse_columns(self) -> Columns:
        """Columns with their types, separated by commas."""
        columns = [self._parse_declared_column()]
        while self._match(TokenType.COMMA):
            columns.append(self._parse_declared_column())
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

    def _parse_query(self) -> exp.Expr:
        """A whole query of any kind."""
        at: Token = self._curr or self._prev
        found = self._parse_query_modifiers(self._parse_set_operations(self._parse_select(nested=True)))
        if found is None:
            fail(Code.STATEMENT, "expected a query", at, STATEMENTS.get(at.text.upper(), QUERY))
        return found

    def _parse_names(self, of: str) -> Names:
        """Names up to a closing parenthesis."""
        names = [self._parse_name(of)]
        while self._match(TokenType.COMMA):
            names.append(self._parse_name(of))
        self._expect(TokenType.R_PAREN, ")")
        return tuple(names)
