"""The codes of everything that can be wrong with a query text; headrace/error_codes.py has their meanings."""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """Stable across releases: a code is never given another meaning."""

    SYNTAX = "HR-Q001"
    NOT_CQL = "HR-Q002"
    STATEMENT = "HR-Q003"
    TOO_DEEP = "HR-Q004"
    ONE_QUERY = "HR-Q005"
    TOO_LONG = "HR-Q006"

    UNKNOWN_STREAM = "HR-Q010"
    UNKNOWN_COLUMN = "HR-Q011"
    AMBIGUOUS_COLUMN = "HR-Q012"
    UNKNOWN_FUNCTION = "HR-Q013"
    TYPES = "HR-Q014"
    ARGUMENTS = "HR-Q015"
    UNKNOWN_TYPE = "HR-Q016"
    NOT_BOOLEAN = "HR-Q017"
    SAME_ALIAS = "HR-Q018"
    LITERAL = "HR-Q019"

    WINDOW = "HR-Q020"
    DURATION = "HR-Q021"
    WINDOW_ON_RELATION = "HR-Q022"
    TIME_DOMAINS = "HR-Q023"
    SESSION = "HR-Q024"
    QUALITY = "HR-Q025"
    QUALITY_COLUMN = "HR-Q026"

    NO_WINDOW = "HR-Q030"
    NESTED_AGGREGATE = "HR-Q031"
    NOT_GROUPED = "HR-Q032"
    MISPLACED_AGGREGATE = "HR-Q033"
    HAVING = "HR-Q034"
    AGGREGATE = "HR-Q035"
    GROUP_POSITION = "HR-Q036"
    GRANULARITY = "HR-Q037"

    JOIN_KIND = "HR-Q040"
    COLUMN_COUNT = "HR-Q041"

    MEANINGLESS_OUTPUT = "HR-Q050"
    ENDLESS = "HR-Q051"
    SLIDES = "HR-Q052"

    ORDER_LIMIT = "HR-Q070"
    OVER = "HR-Q071"
    UNBOUNDED_NUMBER = "HR-Q072"

    SEQUENCE = "HR-Q080"
    SEQUENCE_KEY = "HR-Q081"
    SEQUENCE_CONDITION = "HR-Q082"

    DEFINITION = "HR-Q090"

    NAME_TAKEN = "HR-Q060"
    TIME_COLUMN = "HR-Q061"
    SAME_COLUMN = "HR-Q062"
    STREAMS = "HR-Q063"
    TABLE_FORMAT = "HR-Q064"
    TABLE_FILE = "HR-Q065"
    TABLE_COLUMNS = "HR-Q066"
    NO_STREAM = "HR-Q067"
