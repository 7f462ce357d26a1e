"""The control log: changes to a running pipeline, as an ordered and durable log of commands.

pipeline = headrace.pipeline.load("pipeline.toml")
headrace.control.submit(pipeline, AddQuery("hot", "SELECT …", "hot.jsonl"))
"""

from headrace.control.apply import apply
from headrace.control.check import check
from headrace.control.commands import (
    AddQuery,
    Command,
    Heartbeat,
    Pause,
    Punctuate,
    Reload,
    RemoveQuery,
    Resize,
    Resume,
    SetBounds,
    SetBudget,
    SetLevel,
    SetStrategy,
    Stop,
)
from headrace.control.in_force import changed, in_force
from headrace.control.log import Entry, Log, log_of
from headrace.control.submit import submit

__all__ = [
    "AddQuery",
    "Command",
    "Entry",
    "Heartbeat",
    "Log",
    "Pause",
    "Punctuate",
    "Reload",
    "RemoveQuery",
    "Resize",
    "Resume",
    "SetBounds",
    "SetBudget",
    "SetLevel",
    "SetStrategy",
    "Stop",
    "apply",
    "changed",
    "check",
    "in_force",
    "log_of",
    "submit",
]
