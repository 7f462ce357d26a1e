"""The pipeline file: TOML in, a checked pipeline out, for either runtime."""

from headrace.pipeline.load import load, parse
from headrace.pipeline.pipeline import Pipeline, PipelineQuery, PipelineStream

__all__ = ["Pipeline", "PipelineQuery", "PipelineStream", "load", "parse"]
