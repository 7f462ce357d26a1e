"""Code for the driver: it builds the Spark plan and runs it."""
