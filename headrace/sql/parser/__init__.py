"""CQL text to syntax trees: the dialect that Headrace adds to Spark SQL."""
