"""Studies: claims and what a test over seeds says of them; jobs, their results on disk, and one page of all.

It needs the packages of simfloat's extra `studies`: pip install 'simfloat[studies]'.
"""

from importlib.util import find_spec as _find_spec

#: Packages by the names under which they are imported.
_NEEDED = {"scipy": "scipy", "pyarrow": "pyarrow", "jinja2": "jinja2"}

if _missing := [package for package, name in _NEEDED.items() if _find_spec(name) is None]:
    raise ImportError(f"simfloat.studies needs {', '.join(_missing)}: pip install 'simfloat[studies]'.")

from simfloat.studies.executors import Executor, Job, JobError, Result, in_processes, one_by_one
from simfloat.studies.findings import Finding, Measured, claim, findings_of, verdict_text
from simfloat.studies.intervals import Interval, discoveries, mean_interval, share_interval, spread
from simfloat.studies.machine_room import on_scheduler
from simfloat.studies.report import write_report
from simfloat.studies.stored import as_json, column_names, read_stored, write_csv, write_parquet, write_stored
from simfloat.studies.verdicts import (
    ABOUT,
    EXPONENT,
    FAR,
    HARDLY,
    MANY,
    MATCH,
    MOST,
    POINT,
    RARE,
    Outcome,
    all_of,
    compare,
    compare_shares,
    compare_shortfall,
    count_test,
    difference_test,
    every_test,
    fitted,
    joint_test,
    ratio_test,
)
from simfloat.studies.workspace import Workspace, code_digest, run_jobs, versions

__all__ = [
    "ABOUT",
    "EXPONENT",
    "Executor",
    "FAR",
    "Finding",
    "HARDLY",
    "Interval",
    "Job",
    "JobError",
    "MANY",
    "MATCH",
    "MOST",
    "Measured",
    "Outcome",
    "POINT",
    "RARE",
    "Result",
    "Workspace",
    "all_of",
    "as_json",
    "claim",
    "code_digest",
    "column_names",
    "compare",
    "compare_shares",
    "compare_shortfall",
    "count_test",
    "difference_test",
    "discoveries",
    "every_test",
    "findings_of",
    "fitted",
    "in_processes",
    "joint_test",
    "mean_interval",
    "on_scheduler",
    "one_by_one",
    "ratio_test",
    "read_stored",
    "run_jobs",
    "share_interval",
    "spread",
    "verdict_text",
    "versions",
    "write_csv",
    "write_parquet",
    "write_report",
    "write_stored",
]
