"""Headrace on a real Spark cluster: a master, workers, the package shipped to them, and a job."""
