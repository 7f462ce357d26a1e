"""`CREATE AGGREGATE`: an aggregate written in SQL over tables of its own, as in Stream Mill."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from headrace.sql.parser.clauses import (
    AggregateDeclaration,
    DeleteClause,
    InsertClause,
    StatementClause,
    UpdateClause,
)
from headrace.sql.parser.names import Columns, NameParser, Names
from headrace.sql.place import Code, fail, nearest

BLOCKS: Final = ("INITIALIZE", "ITERATE", "TERMINATE", "EXPIRE")
NEEDED: Final = BLOCKS[:3]
END: Final = TokenType.BREAK
"""What a semicolon inside the braces of an aggregate becomes; the tokenizer makes no such token."""
BRACES: Final = {TokenType.L_BRACE: 1, TokenType.R_BRACE: -1}
FORM: Final = (
    "CREATE AGGREGATE f(x INT) : INT { TABLE t(…); INITIALIZE: { … } ITERATE: { … } TERMINATE: { … } }"
)


def in_one_piece(tokens: Sequence[Token]) -> list[Token]:
    """Tokens whose semicolons inside an aggregate do not end the statement."""
    return [
        Token(END, ";", token.line, token.col, token.start, token.end)
        if inside and token.token_type == TokenType.SEMICOLON
        else token
        for token, inside in zip(tokens, _inside(tokens), strict=True)
    ]


def outside(tokens: Sequence[Token]) -> list[Token]:
    """The tokens that are not inside the braces of an aggregate."""
    return [token for token, inside in zip(tokens, _inside(tokens), strict=True) if not inside]


def _inside(tokens: Sequence[Token]) -> Iterator[bool]:
    """For each token, whether it is inside the braces of an aggregate."""
    depth, before, declares = 0, "", False
    for token in tokens:
        word = token.text.upper()
        if depth == 0 and word == "AGGREGATE":
            declares = before in ("CREATE", "REPLACE", "TEMPORARY")
        if declares and token.token_type in BRACES:
            depth += BRACES[token.token_type]
            declares = depth > 0
        before = word
        yield depth > 0


class AggregateParser(NameParser):
    """Parses the declaration of an aggregate, its tables and its statements."""

    def _parse_aggregate_declaration(self, replace: bool) -> AggregateDeclaration:
        name = self._parse_name("an aggregate")
        self._expect(TokenType.L_PAREN, "( and the arguments")
        arguments = self._parse_columns()
        self._expect(TokenType.R_PAREN, ")")
        if not (self._match(TokenType.COLON) or self._match_text_seq("RETURNS")):
            fail(Code.SYNTAX, "expected : and the type of the value", self._curr or self._prev, FORM)
        at = self._curr or self._prev
        result = self._parse_types(allow_identifiers=False)
        if not isinstance(result, exp.DataType):
            hint = "types: BIGINT, DOUBLE, STRING, TIMESTAMP, …"
            fail(Code.UNKNOWN_TYPE, f"{at.text!r} is not a type", at, hint)
        result.update_positions(at)
        self._open(f"and the blocks of {name.name}")
        tables: tuple[tuple[exp.Identifier, Columns], ...] = ()
        while self._match(TokenType.TABLE):
            table = self._parse_name("a table")
            self._expect(TokenType.L_PAREN, "( and the columns")
            tables += ((table, self._parse_columns()),)
            self._expect(TokenType.R_PAREN, ")")
            self._match(END)
        blocks = self._parse_blocks(name)
        return AggregateDeclaration(name, arguments, result, tables, blocks, replace)

    def _open(self, what: str) -> None:
        if not self._match(TokenType.L_BRACE):
            fail(Code.SYNTAX, f"expected {{ {what}", self._curr or self._prev, FORM)

    def _parse_blocks(self, name: exp.Identifier) -> dict[str, tuple[StatementClause, ...]]:
        """The blocks up to the closing brace."""
        blocks: dict[str, tuple[StatementClause, ...]] = {}
        while not self._match(TokenType.R_BRACE):
            at = self._curr or self._prev
            word = at.text.upper() if self._curr else ""
            if word not in BLOCKS or word in blocks:
                self._refuse_block(word, at, word in blocks)
            self._advance()
            self._match(TokenType.COLON)
            self._open(f"and the statements of {word}")
            blocks[word] = self._parse_statements(word)
            self._match(END)
        missing = next((word for word in NEEDED if word not in blocks), None)
        if missing is not None:
            fail(Code.DEFINITION, f"the aggregate {name.name} has no {missing}", name, FORM)
        return blocks

    def _refuse_block(self, word: str, at: Token, twice: bool) -> None:
        if twice:
            fail(Code.SYNTAX, f"{word} is written twice", at, "put all its statements into one block")
        hint = "tables come before the blocks" if word == "TABLE" else ""
        shown = "expected } or a block" if not word else f"{at.text} is not a block"
        fail(Code.SYNTAX, shown, at, hint or nearest(word, BLOCKS, f"blocks: {', '.join(BLOCKS)}"))

    def _parse_statements(self, block: str) -> tuple[StatementClause, ...]:
        """Statements up to the closing brace; a semicolon ends each."""
        found: list[StatementClause] = []
        while not self._match(TokenType.R_BRACE):
            at = self._curr or self._prev
            read = STATEMENTS.get(at.text.upper()) if self._curr else None
            if read is None:
                hint = "statements: INSERT INTO, UPDATE, DELETE FROM; the value: INSERT INTO RETURN SELECT …"
                fail(Code.SYNTAX, f"{block} has statements, and this is none", at, hint)
            found.append(read(self))
            if not self._match(END) and self._curr.token_type != TokenType.R_BRACE:
                hint = "end each statement with ; and the block with }"
                fail(Code.SYNTAX, "this is not expected here", self._curr or self._prev, hint)
        return tuple(found)

    def _parse_insert_into(self) -> InsertClause:
        at = self._curr
        self._advance()
        self._match(TokenType.INTO)
        returns = self._match_text_seq("RETURN")
        table = None if returns else self._parse_name("a table")
        columns: Names = ()
        if self._curr.token_type == TokenType.L_PAREN and self._next.token_type != TokenType.SELECT:
            self._advance()
            columns = self._parse_names("a column")
        if self._match(TokenType.VALUES):
            self._expect(TokenType.L_PAREN, "( and the values")
            values = tuple(self._parse_csv(self._parse_value_of))
            self._expect(TokenType.R_PAREN, ")")
            return InsertClause(table, columns, values, None, self._span_from(at))
        return InsertClause(table, columns, (), self._parse_query(), self._span_from(at))

    def _parse_returned(self) -> InsertClause:
        """`SELECT …` for `INSERT INTO RETURN SELECT …`."""
        at = self._curr
        return InsertClause(None, (), (), self._parse_query(), self._span_from(at))

    def _parse_value_of(self) -> exp.Expr:
        at = self._curr or self._prev
        found = self._parse_disjunction()
        if found is None:
            fail(Code.SYNTAX, "expected a value", at)
        return found

    def _parse_update_of(self) -> UpdateClause:
        at = self._curr
        self._advance()
        table = self._parse_name("a table")
        self._expect(TokenType.SET, "SET")
        values = [self._parse_assignment_of()]
        while self._match(TokenType.COMMA):
            values.append(self._parse_assignment_of())
        return UpdateClause(table, tuple(values), self._parse_where_of(), self._span_from(at))

    def _parse_assignment_of(self) -> tuple[exp.Identifier, exp.Expr]:
        column = self._parse_name("a column")
        self._expect(TokenType.EQ, "=")
        return column, self._parse_value_of()

    def _parse_delete_from(self) -> DeleteClause:
        at = self._curr
        self._advance()
        self._match(TokenType.FROM)
        return DeleteClause(self._parse_name("a table"), self._parse_where_of(), self._span_from(at))

    def _parse_where_of(self) -> exp.Expr | None:
        return self._parse_value_of() if self._match(TokenType.WHERE) else None


STATEMENTS: Final[dict[str, Callable[[Any], StatementClause]]] = {
    "INSERT": AggregateParser._parse_insert_into,
    "UPDATE": AggregateParser._parse_update_of,
    "DELETE": AggregateParser._parse_delete_from,
    "SELECT": AggregateParser._parse_returned,
}
