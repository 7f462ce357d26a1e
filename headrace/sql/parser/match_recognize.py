"""`MATCH_RECOGNIZE (PARTITION BY … MEASURES … PATTERN (…) WITHIN … DEFINE …)` after a FROM item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from headrace.plan.nodes.match import After, Chain, Either, One, Pattern, Repeat
from headrace.sql.parser.clauses import Recognize, RecognizeClause
from headrace.sql.place import CLOSE, Code, fail

if TYPE_CHECKING:
    from headrace.sql.parser.windows import WindowParser

WORD: Final = "MATCH_RECOGNIZE"
FORM: Final = (
    "MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES A.x AS x PATTERN (A B+) DEFINE B AS B.x > A.x)"
)
QUANTIFIERS: Final = "write A+, A*, A?, A{2}, A{2,} or A{2,5}, each also with ? after it"
SHORT: Final[dict[str, tuple[int, int | None]]] = {"+": (1, None), "*": (0, None), "?": (0, 1)}
AFTER: Final[dict[tuple[str, ...], After]] = {
    ("PAST", "LAST", "ROW"): After.PAST_LAST_ROW,
    ("TO", "NEXT", "ROW"): After.TO_NEXT_ROW,
    ("TO", "FIRST"): After.TO_FIRST,
    ("TO", "LAST"): After.TO_LAST,
}
SKIPS: Final = "write AFTER MATCH SKIP PAST LAST ROW, TO NEXT ROW, TO FIRST A or TO LAST A"
NEXT_CLAUSES: Final = frozenset({"PATTERN", "ONE", "ALL", "AFTER"})
REFUSED: Final[dict[str, tuple[str, str]]] = {
    "^": ("anchors in a pattern", "a stream has no first row that a query could rely on"),
    "$": ("anchors in a pattern", "a stream has no last row"),
    "{-": ("{- -} in a pattern", "a match is one row, so name only what you need in MEASURES"),
    "PERMUTE": ("PERMUTE", "write the orders: (A B | B A)"),
}


def opens_match_recognize(parser: WindowParser) -> bool:
    """Whether `MATCH_RECOGNIZE (` comes next."""
    return parser._curr.text.upper() == WORD and parser._next.token_type == TokenType.L_PAREN


def parse_match_recognize(parser: WindowParser, item: exp.Expr) -> Recognize:
    """The clauses after a FROM item, up to the alias of the matches."""
    word: Any = parser._curr
    parser._advance(2)
    keys = parser._parse_csv(parser._parse_disjunction) if parser._match(TokenType.PARTITION_BY) else []
    order = parser._parse_order()
    measures = _parse_measures(parser)
    _parse_rows_per_match(parser)
    skip = _parse_skip(parser)
    _expect(parser, "PATTERN")
    variables: dict[str, Token] = {}
    pattern = _parse_group(parser, variables)
    within = parser._parse_duration() if parser._match_text_seq("WITHIN") else None
    if parser._match_text_seq("SUBSET"):
        _refuse("SUBSET", parser._prev, "write the alternatives in the pattern, and name each in MEASURES")
    define = parser._parse_csv(lambda: _parse_definition(parser)) if parser._match_text_seq("DEFINE") else []
    if not parser._match(TokenType.R_PAREN):
        fail(Code.SYNTAX, "expected ) at the end of MATCH_RECOGNIZE", parser._curr or parser._prev, FORM)
    node = Recognize(this=item, partition=keys, order=order, measures=measures, define=define)
    node.update_positions(word)
    node.meta[CLOSE] = parser._prev.end
    node.meta[Recognize.CLAUSE] = RecognizeClause(pattern, variables, *skip, within)
    alias = parser._parse_table_alias()
    if alias is not None:
        node.set("alias", alias)
    return node


def _refuse(what: str, place: Any, hint: str) -> NoReturn:
    fail(Code.PATTERN, f"CQL does not support {what}", place, hint)


def _expect(parser: WindowParser, word: str) -> None:
    if not parser._match_text_seq(word):
        hint = (
            "the clauses come in this order: PARTITION BY, ORDER BY, MEASURES, AFTER MATCH, PATTERN, DEFINE"
        )
        fail(Code.SYNTAX, f"expected {word}", parser._curr or parser._prev, hint)


def _parse_measures(parser: WindowParser) -> list[exp.Expr]:
    """`MEASURES expression AS name, …`."""
    if not parser._match_text_seq("MEASURES"):
        return []
    found: list[exp.Expr] = []
    while True:
        if parser._curr.text.upper() in ("FINAL", "RUNNING") and parser._next.token_type != TokenType.DOT:
            parser._advance()  # a match is one row, at its last row, where both mean the same
        value: Any = parser._parse_expression()
        named = parser._tokens[parser._index - 2].token_type == TokenType.ALIAS
        if not isinstance(value, exp.Alias) or (value.alias.upper() in NEXT_CLAUSES and not named):
            fail(Code.SYNTAX, "a measure needs a name", value or parser._curr, "write LAST(A.x) AS x")
        found.append(value)
        if not parser._match(TokenType.COMMA):
            return found


def _parse_rows_per_match(parser: WindowParser) -> None:
    first = parser._curr
    if parser._match_text_seq("ALL", "ROWS", "PER", "MATCH"):
        hint = "remove it: a match is one row; name the values that you need in MEASURES"
        _refuse("ALL ROWS PER MATCH", first, hint)
    parser._match_text_seq("ONE", "ROW", "PER", "MATCH")


def _parse_skip(parser: WindowParser) -> tuple[After, exp.Identifier | None]:
    """AFTER MATCH SKIP, and the variable that it names."""
    if not parser._match_text_seq("AFTER", "MATCH", "SKIP"):
        return After.PAST_LAST_ROW, None
    for words, after in AFTER.items():
        if not parser._match_text_seq(*words):
            continue
        if after not in (After.TO_FIRST, After.TO_LAST):
            return after, None
        name: Any = parser._parse_id_var(any_token=False)
        if isinstance(name, exp.Identifier):
            return after, name
    fail(Code.SYNTAX, "AFTER MATCH SKIP needs a place", parser._curr or parser._prev, SKIPS)


def _parse_definition(parser: WindowParser) -> exp.Expr:
    """`A AS condition`."""
    name: Any = parser._parse_id_var(any_token=False)
    if not isinstance(name, exp.Identifier) or not parser._match(TokenType.ALIAS):
        fail(
            Code.SYNTAX,
            "expected a variable and AS",
            parser._curr or parser._prev,
            "write DEFINE A AS A.x > 0",
        )
    condition: Any = parser._parse_disjunction()
    if condition is None:
        fail(Code.SYNTAX, "expected a condition", parser._curr or parser._prev, "write DEFINE A AS A.x > 0")
    return exp.Alias(this=condition, alias=name)


# Patterns.


def _parse_group(parser: WindowParser, variables: dict[str, Token]) -> Pattern:
    """A pattern in parentheses."""
    opening = parser._curr
    if not parser._match(TokenType.L_PAREN):
        fail(Code.SYNTAX, "expected ( and a pattern", opening or parser._prev, "write PATTERN (A B+ C)")
    ways = [_parse_chain(parser, variables)]
    while parser._match(TokenType.PIPE):
        ways.append(_parse_chain(parser, variables))
    if not parser._match(TokenType.R_PAREN):
        at = parser._curr or parser._prev
        fail(Code.SYNTAX, "this is not expected in a pattern", at, QUANTIFIERS)
    return ways[0] if len(ways) == 1 else Either(tuple(ways))


def _parse_chain(parser: WindowParser, variables: dict[str, Token]) -> Pattern:
    """Parts one after the other, at least one."""
    parts: list[Pattern] = []
    while (part := _parse_part(parser, variables)) is not None:
        parts.append(_parse_quantifier(parser, part))
    if not parts:
        fail(Code.SYNTAX, "expected a variable", parser._curr or parser._prev, "write PATTERN (A B+ C)")
    return parts[0] if len(parts) == 1 else Chain(tuple(parts))


def _parse_part(parser: WindowParser, variables: dict[str, Token]) -> Pattern | None:
    """A variable or a group; None if neither comes next."""
    token: Any = parser._curr
    both = token.text + parser._next.text if token.token_type == TokenType.L_BRACE else token.text.upper()
    if both in REFUSED and (both != "PERMUTE" or parser._next.token_type == TokenType.L_PAREN):
        _refuse(REFUSED[both][0], token, REFUSED[both][1])
    if token.token_type == TokenType.L_PAREN:
        return _parse_group(parser, variables)
    if token.token_type == TokenType.PIPE:
        return None
    name: Any = parser._parse_id_var(any_token=False)
    if not isinstance(name, exp.Identifier):
        return None
    known = next((each for each in variables if each.lower() == name.name.lower()), name.name)
    variables.setdefault(known, token)
    return One(known)


def _parse_quantifier(parser: WindowParser, part: Pattern) -> Pattern:
    """`+`, `*`, `?`, `{n}`, `{n,}`, `{,m}` or `{n,m}`, and `?` after it if fewer are better; or nothing."""
    if parser._match(TokenType.DQMARK):
        return Repeat(part, 0, 1, greedy=False)
    repetition = parse_repetition(parser)
    if repetition is None:
        return part
    least, most = repetition
    greedy = not parser._match(TokenType.PLACEHOLDER)
    if parser._curr.text in SHORT and parser._curr.token_type != TokenType.STRING:
        fail(Code.SYNTAX, "two quantifiers in a row", parser._curr, "write a group: (A+)*")
    return part if (least, most) == (1, 1) else Repeat(part, least, most, greedy)


def parse_repetition(parser: WindowParser) -> tuple[int, int | None] | None:
    """`+`, `*`, `?` or `{n,m}`: the least and the most; None if none of these is next."""
    token: Any = parser._curr
    if token.token_type == TokenType.L_BRACE and parser._next.token_type != TokenType.DASH:
        return _parse_counts(parser)
    if token.text in SHORT and token.token_type != TokenType.STRING:
        parser._advance()
        return SHORT[token.text]
    return None


def _parse_counts(parser: WindowParser) -> tuple[int, int | None]:
    """`{n}`, `{n,}`, `{,m}` or `{n,m}`."""
    opening: Any = parser._curr
    parser._advance()
    least = _parse_count(parser)
    most = least
    if parser._match(TokenType.COMMA):
        most = _parse_count(parser)
        least = least or 0
        unlimited = most is None
    else:
        unlimited = False
    closed = parser._match(TokenType.R_BRACE)
    if not closed or least is None or (most is not None and (most < least or most == 0)):
        fail(Code.SYNTAX, "this is not a number of repetitions", opening, QUANTIFIERS)
    return least, None if unlimited else most


def _parse_count(parser: WindowParser) -> int | None:
    token: Any = parser._curr
    if not (token.token_type == TokenType.NUMBER and token.text.isdecimal() and len(token.text) < 10):
        return None
    parser._advance()
    return int(token.text)
