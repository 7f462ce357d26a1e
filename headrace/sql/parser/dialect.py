"""CQL: Spark's SQL with windows on FROM items, ISTREAM / DSTREAM / RSTREAM and stream declarations.

Functions keep the names they were written with: `headrace.expressions` knows them by Spark's names, and
sqlglot's rewriting would only have to be undone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from headrace.sql.parser.clauses import WITHIN, Duration, ToStream
from headrace.sql.parser.declarations import DeclarationParser
from headrace.sql.parser.windows import AMOUNT_TOKENS
from headrace.sql.place import CLOSE, Code, fail

OUTPUTS: Final = frozenset({"ISTREAM", "DSTREAM", "RSTREAM", "CHANGELOG"})
AROUND: Final = OUTPUTS | {"UNORDERED"}
"""The words that may stand around a query in parentheses."""
OPENS_QUERY: Final = frozenset({TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN, TokenType.FROM})
TEXT: Final = "text"
"""The key in an expression's `meta` for its first and last character."""


class CqlParser(DeclarationParser):
    """Parses statements: only declarations and queries."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: SparkParser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST", "EXTRACT")
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        "CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]
    }

    # `array(1, 2)[0]` is an element, although a name is before the bracket; the binder reads `ARRAY[1, 2]`.
    ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}

    # Spark's {name}: an unclosed one would take the next word, even one in another part of the query.
    PLACEHOLDER_PARSERS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        token: parse for token, parse in SparkParser.PLACEHOLDER_PARSERS.items() if token != TokenType.L_BRACE
    }

    QUERY_MODIFIER_PARSERS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        token: parse
        for token, parse in SparkParser.QUERY_MODIFIER_PARSERS.items()
        if token != TokenType.CONNECT_BY
    }
    QUERY_MODIFIER_TOKENS: ClassVar[set[TokenType]] = set(QUERY_MODIFIER_PARSERS)

    def _parse_connect(self, skip_start_token: bool = False) -> exp.Connect | None:
        """CONNECT BY is not parsed.

        If that failed, sqlglot would leave a word behind in the table of functions.
        """
        return None

    def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:
        """A `window(` that comes first is a function; sqlglot would read it as the clause WINDOW."""
        ahead = [each.text.upper() for each in self._tokens[self._index + 1 : self._index + 3]]
        if self._curr.token_type != TokenType.GROUP_BY or ahead != ["WINDOW", "("]:
            return super()._parse_group(skip_group_by_token)
        self._advance()
        found: exp.Group = self.expression(exp.Group(expressions=self._parse_csv(self._parse_disjunction)))
        return found

    def _parse_statement(self) -> exp.Expr | None:
        if not self._curr:
            return None
        if self._match(TokenType.SEMICOLON):
            return exp.Semicolon()
        return self._parse_create() if self._match(TokenType.CREATE) else self._parse_query()

    def _parse_select_query(
        self,
        nested: bool = False,
        table: bool = False,
        parse_subquery_alias: bool = True,
        parse_set_operation: bool = True,
    ) -> exp.Expr | None:
        if not self._opens_output():
            return super()._parse_select_query(nested, table, parse_subquery_alias, parse_set_operation)
        this = self._parse_output()
        if table:
            return self._parse_subquery(this, parse_alias=parse_subquery_alias)
        return self._parse_set_operations(this) if parse_set_operation else this

    def _opens_output(self) -> bool:
        """Whether `ISTREAM(` and a query come next; `ISTREAM(a, b)` after SELECT is an expression."""
        if self._curr.text.upper() not in AROUND or self._next.token_type != TokenType.L_PAREN:
            return False
        inside = self._tokens[self._index + 2] if self._index + 2 < self._tokens_size else None
        return inside is not None and (inside.token_type in OPENS_QUERY or inside.text.upper() in AROUND)

    def _parse_output(self) -> ToStream:
        """`ISTREAM(query)`, or the same with another output word, or `UNORDERED(query)`."""
        word = self._curr
        self._advance(2)
        query = self._parse_query()
        self._match_r_paren()
        kind = word.text.upper()
        keys = list(self._parse_key_columns()) if kind == "CHANGELOG" else []
        return ToStream(this=query, kind=kind, keys=keys).update_positions(word)

    def _parse_join(
        self,
        skip_join_token: bool = False,
        parse_bracket: bool = False,
        alias_tokens: Any = None,
    ) -> exp.Join | None:
        """A FROM item after a comma, so that errors are reported at its place; an ON has a condition."""
        if self._match(TokenType.COMMA):
            item = self._parse_table(alias_tokens=alias_tokens)
            return self.expression(exp.Join(this=item)) if item else None
        join = super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
        if join is not None and self._prev.token_type == TokenType.ON:
            fail(Code.SYNTAX, "ON needs a condition", self._prev, "write JOIN … ON a.k = b.k")
        return join

    def _parse_between(self, this: exp.Expr | None) -> exp.Between:
        """BETWEEN … AND …; sqlglot would accept it without AND."""
        low = self._parse_bitwise()
        if not self._match(TokenType.AND):
            fail(Code.SYNTAX, "BETWEEN needs AND", self._curr or self._prev, "write x BETWEEN 1 AND 9")
        between = exp.Between(this=this, low=low, high=self._parse_bitwise())
        return self.validate_expression(between)

    def _parse_function_call(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        """A call must end with its closing parenthesis."""
        found = super()._parse_function_call(*args, **kwargs)
        if found is not None and self._prev.token_type == TokenType.R_PAREN:
            found.meta[CLOSE] = self._prev.end
        return found

    def _parse_projections(self) -> tuple[list[exp.Expr], list[exp.Expr] | None]:
        """Expressions separated by commas; sqlglot would skip a missing expression."""
        within = self._parse_within()
        found = [self._parse_projection()]
        if within is not None:
            found[0].meta[WITHIN] = within
        while self._match(TokenType.COMMA):
            found.append(self._parse_projection())
        return found, None

    def _parse_within(self) -> Duration | None:
        """The time of `DISTINCT ON (k) WITHIN 1 HOUR`."""
        follows = self._prev.token_type == TokenType.R_PAREN and self._next.token_type in AMOUNT_TOKENS
        if not follows or self._curr.text.upper() != "WITHIN":
            return None
        self._advance()
        return self._parse_duration()

    def _parse_projection(self) -> exp.Expr:
        found = self._parse_expression()
        if found is None:
            hint = "name a column, or write * for all; is there a comma too many?"
            fail(Code.SYNTAX, "expected a column or an expression", self._curr or self._prev, hint)
        return found

    def _parse_expression(self) -> exp.Expr | None:
        """Record the text of every expression, which names its column."""
        first = self._curr
        found = super()._parse_expression()
        if found is not None and first:
            found.meta[TEXT] = (first.start, self._prev.end + 1)
        return found

    def expression(self, instance: Any, token: Token | None = None, comments: list[str] | None = None) -> Any:
        """Record the last token of every node.

        Together with its children this gives its place in the text.
        """
        if token is None and self._prev:
            instance.update_positions(self._prev)
        return super().expression(instance, token, comments)


class Cql(Spark):
    """The dialect, in the form that sqlglot expects."""

    class Tokenizer(Spark.Tokenizer):
        """No statement consumes the rest of the text unparsed.

        A doubled quote is one quote, as in Spark 4.
        """

        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']
        COMMANDS: ClassVar[set[TokenType]] = set()

    Parser = CqlParser
