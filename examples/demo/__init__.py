"""The auction on Spark, live: a query with Headrace and one of Spark alone, over the same three streams."""
