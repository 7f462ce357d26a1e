"""Code for Spark's Python workers: partitioners, and hosts that run the engine."""
