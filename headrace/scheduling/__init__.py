"""Who runs next: rules, tables, strategies."""
