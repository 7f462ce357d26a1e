"""The engine on Spark, and help for Spark's own operators. Users import `headrace.spark`."""
