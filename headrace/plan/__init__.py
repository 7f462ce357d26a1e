"""The logical plan of a query, as frozen data."""
