"""The nodes of the logical plan."""
