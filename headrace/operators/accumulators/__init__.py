"""How aggregates are computed: recipes of partial values, kept by pane or by instant."""
