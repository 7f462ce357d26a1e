"""Syntax trees to plans: names, types and clauses."""
