"""Kafka: a source that knows its offsets, and a sink whose transactions belong to checkpoints.

The client is `confluent-kafka`, which the extra `headrace[kafka]` installs.
"""
