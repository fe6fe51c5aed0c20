"""Studies: claims and their tests over seeds, jobs, results on disk, and one report of everything.

The package needs simfloat's extra `studies`: pip install 'simfloat[studies]'.
"""

from importlib.util import find_spec as _find_spec

#: Packages by the names under which they are imported.
_NEEDED = {"scipy": "scipy", "pyarrow": "pyarrow", "jinja2": "jinja2", "cloudpickle": "cloudpickle"}

if _missing := [package for package, name in _NEEDED.items() if _find_spec(name) is None]:
    raise ImportError(f"simfloat.studies needs {', '.join(_missing)}: pip install 'simfloat[studies]'.")

from simfloat.studies import verdicts
from simfloat.studies.comparing import Compared, PairedComparison, compare
from simfloat.studies.executors import Executor, Job, JobError, Result, in_processes, one_by_one
from simfloat.studies.repeating import Repetitions, repeat
from simfloat.studies.report import report, write_report
from simfloat.studies.search import search
from simfloat.studies.search_parts import Confirmation, Search, SearchPoint
from simfloat.studies.statistics import Interval, discoveries, mean_interval, share_interval, spread
from simfloat.studies.stored import as_json, column_names, read_stored, write_csv, write_parquet, write_stored
from simfloat.studies.sweeping import (
    ATTEMPTS,
    SWEEP_FILES,
    SWEEP_HIDDEN,
    StudyTable,
    SweepPlan,
    check_count,
    combinations,
    conduct_sweep,
    sweep,
)
from simfloat.studies.verdicts import Finding, Measured, claim, findings_of, verdict_text
from simfloat.studies.workspace import Workspace, code_digest, on_scheduler, run_jobs, versions

#: The rules for margins, which are part of `verdicts`.
margins = verdicts

__all__ = [
    "ATTEMPTS",
    "SWEEP_FILES",
    "SWEEP_HIDDEN",
    "margins",
    "verdicts",
    "Compared",
    "Confirmation",
    "Executor",
    "Finding",
    "Interval",
    "Job",
    "JobError",
    "Measured",
    "PairedComparison",
    "Repetitions",
    "Result",
    "Search",
    "SearchPoint",
    "StudyTable",
    "SweepPlan",
    "Workspace",
    "as_json",
    "check_count",
    "claim",
    "code_digest",
    "column_names",
    "combinations",
    "compare",
    "conduct_sweep",
    "discoveries",
    "findings_of",
    "in_processes",
    "mean_interval",
    "on_scheduler",
    "one_by_one",
    "read_stored",
    "repeat",
    "report",
    "run_jobs",
    "search",
    "share_interval",
    "spread",
    "sweep",
    "verdict_text",
    "versions",
    "write_csv",
    "write_parquet",
    "write_report",
    "write_stored",
]
