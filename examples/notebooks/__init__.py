"""Three notebooks with their outputs: a first query, live queries, and a job on Spark."""
