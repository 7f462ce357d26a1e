"""Sources, which rows come from, and sinks, which results go to."""
