export PYTHONPATH=/work/wt/first2 NUMBA_CACHE_DIR=/tmp/kernels_r PYTHONDONTWRITEBYTECODE=1; PY=/work/main/.venv/bin/python
