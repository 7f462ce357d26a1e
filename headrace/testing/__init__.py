"""Tools to check queries, for users, tests and experiments.

`oracle` computes the result of a plan by definition, `compare` shows how an engine's result differs from it,
`arrivals` makes streams that are late, skewed, bursty or silent, and `asking` tries a query on a few rows.
"""
