"""What tests, demos and experiments stand on.

`oracle` says what a plan means, `compare` how an engine's answer differs from it, `arrivals` makes streams
that are late, skewed, bursty or silent, `interleavings` the orders in which they may be pushed; `plans` and
`runs` (which need hypothesis) draw random queries and ways of executing them; `asking` tries out one query.
"""
