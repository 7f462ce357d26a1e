"""The algebra, one operator per file."""
