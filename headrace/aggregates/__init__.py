"""Aggregate functions as partial values: by instant, by pane and by session."""
