"""The Python that Spark's workers start with: this one, with PySpark read from where it is installed.

Spark puts a zip file of PySpark before everything else on the path of its workers. Nothing in a zip file is
kept compiled, so each start compiles it anew: 1.5 s of CPU time where 0.3 s would do, and on a busy machine
more than the ten seconds that Spark gives to the process it starts with each stateful query.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pyspark

from headrace.runtimes.spark.java import cache_folder

_WRAPPER = """\
#!/bin/sh
# Written by Headrace: starts Python without Spark's zip file of PySpark, which is installed here.
IFS=:
rest=
for part in $PYTHONPATH; do
    case "$part" in */pyspark.zip) ;; *) rest="$rest:$part" ;; esac
done
PYTHONPATH="${{rest#:}}" exec '{python}' "$@"
"""


def quick_python() -> str:
    """A script that stands for this Python; or this Python, where PySpark is not an installed package."""
    home = Path(pyspark.__file__).parent
    if not home.is_dir() or os.environ.get("SPARK_HOME", str(home)) != str(home) or "'" in sys.executable:
        return sys.executable
    text = _WRAPPER.format(python=sys.executable)
    script = cache_folder(os.environ) / f"python-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    try:
        if not script.is_file():
            script.parent.mkdir(parents=True, exist_ok=True)
            draft = script.with_name(f"{script.name}.{os.getpid()}")
            draft.write_text(text)
            draft.chmod(0o755)
            draft.replace(script)  # two processes may write at once: the last rename stands
    except OSError:
        return sys.executable
    return str(script)
