"""Which operator runs next: rules, tables, strategies."""
